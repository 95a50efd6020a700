"""The exchange with Entra, whom it trusts, and what an Azure identity's files say."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import PurePosixPath
from typing import Any

import pytest
from dotenv import dotenv_values

from agent.errors import Rejected, Unavailable
from agent.model import Delivery, Paths, PriorDelivery, Secret
from tests.servers.azure import Azure, azure, azure_settings, failure
from tests.servers.entra import AUDIENCE, CLIENT, TENANT
from tests.servers.issuer import SUBJECT, rsa_key

PATHS = Paths(directory=PurePosixPath("/var/run/identities/vault-reader"))
OTHER = "00000000-1111-2222-3333-444444444444"
VAULT = "https://vault.azure.net"
STORAGE = "https://storage.azure.com"


@pytest.fixture
async def cloud() -> AsyncIterator[Azure]:
    async with azure() as one:
        yield one


async def test_a_token_becomes_an_access_token_for_the_resource(cloud: Azure) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    provider = cloud.provider(scopes=[f"{VAULT}/.default"])
    credential = await provider.exchange(cloud.token())
    document = credential.document()
    assert cloud.entra.granted[document["access_token"].reveal()] == document["resource"] == VAULT
    assert (document["client_id"], document["token_type"]) == (CLIENT, "Bearer")
    assert credential.issued_at is not None
    assert credential.expires_at == document["expires_on"]
    assert before + timedelta(seconds=3599) <= credential.expires_at <= datetime.now(UTC) + timedelta(seconds=3599)
    assert provider.host == f"127.0.0.1:{cloud.entra.port}"
    assert cloud.entra.paths == [f"/{TENANT}/oauth2/v2.0/token"], "no instance discovery"
    assert document["access_token"].reveal() not in repr(credential)


async def test_without_scopes_the_token_is_for_the_resource_manager_of_its_cloud(cloud: Azure) -> None:
    await cloud.provider().exchange(cloud.token())
    assert cloud.entra.parameters[-1]["scope"] == "https://management.azure.com/.default"


async def test_each_exchange_sends_the_token_it_is_given_and_brings_another_one(cloud: Azure) -> None:
    provider = cloud.provider()
    tokens = [cloud.token() for _ in range(3)]
    found = [(await provider.exchange(token)).document()["access_token"].reveal() for token in tokens]
    assert cloud.entra.presented == [token.id for token in tokens], "nothing is taken from a cache"
    assert len(set(found)) == 3


async def test_each_scope_is_a_variant_with_a_clock_of_its_own(cloud: Azure) -> None:
    settings = {"scopes": [f"{VAULT}/.default", f"{STORAGE}/.default", "https://eventhubs.azure.net//.default"]}
    assert azure_settings(**settings).variants() == (STORAGE, "https://eventhubs.azure.net/")
    provider, token = cloud.provider(**settings), cloud.token()
    first = await provider.exchange(token)
    cloud.entra.lifetime = 30
    second, third = await provider.exchange(token, STORAGE), await provider.exchange(token, "https://eventhubs.azure.net/")
    assert [one.document()["resource"] for one in (first, second, third)] == [VAULT, STORAGE, "https://eventhubs.azure.net/"]
    assert first.expires_at is not None
    assert second.expires_at is not None
    assert first.expires_at - second.expires_at > timedelta(minutes=50)


async def test_only_what_is_configured_can_be_asked_for(cloud: Azure) -> None:
    token = cloud.token()
    provider = cloud.provider(resources=[VAULT])
    assert (await provider.exchange(token, VAULT)).document()["resource"] == VAULT
    for variant in (STORAGE, f"{VAULT}/", f"{VAULT}/.default", VAULT.upper(), f"{VAULT} {STORAGE}", f"{VAULT}.evil.example"):
        error = await failure(cloud, token, variant, resources=[VAULT])
        assert isinstance(error, Rejected)
        assert "provider.resources" in error.remedy
    assert cloud.entra.requests == 1


@pytest.mark.parametrize(
    ("resource", "found"),
    [
        (VAULT, ""),
        (f"{VAULT}/", ""),
        (STORAGE, STORAGE),
        (f"{STORAGE}/", STORAGE),
        ("https://eventhubs.azure.net", "https://eventhubs.azure.net/"),
        (f"{STORAGE}//", None),
        (f"{STORAGE}.evil.example", None),
        ("https://STORAGE.azure.com", None),
        ("https://graph.microsoft.com", None),
        ("", None),
    ],
)
def test_a_resource_asked_for_at_run_time_is_kept_under_what_the_configuration_calls_it(resource: str, found: str | None) -> None:
    settings = azure_settings(scopes=[f"{VAULT}/.default", f"{STORAGE}/.default"], resources=["https://eventhubs.azure.net/"])
    assert settings.variant_of(resource) == found


Row = tuple[str, Callable[[Azure], Any], str, str]
ROWS: list[Row] = [
    ("another audience", lambda c: c.token(aud="vault"), "AADSTS700212", "the audience vault"),
    ("several audiences", lambda c: c.token(aud=[AUDIENCE, "vault"]), "AADSTS700212", "provider.audiences"),
    ("another subject", lambda c: c.token(sub="system:serviceaccount:demo:x"), "AADSTS700213", "the subject system:serviceaccount:demo:x"),
    ("another issuer", lambda c: c.token(iss="https://issuer.example"), "AADSTS700211", "the issuer https://issuer.example"),
    ("expired", lambda c: c.token(iat=1, exp=2), "AADSTS700024", "clock"),
    ("an issuer five minutes ahead", lambda c: c.token(now=datetime.now(UTC) + timedelta(minutes=5)), "AADSTS700024", "clock"),
    (
        "an issuer an hour and five minutes behind",
        lambda c: c.token(now=datetime.now(UTC) - timedelta(minutes=65)),
        "AADSTS700024",
        "clock",
    ),
    ("another key", lambda c: c.token(key=rsa_key("stranger")), "AADSTS7000272", "/.well-known/openid-configuration lead"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
async def test_a_token_that_entra_does_not_trust_is_rejected_with_what_to_change(cloud: Azure, row: Row) -> None:
    _, token, code, remedy = row
    error = await failure(cloud, token(cloud))
    assert isinstance(error, Rejected)
    assert f"answered 401 {code}: " in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize("minutes", [4, -64])
async def test_clocks_that_are_less_wrong_than_entra_tolerates_do_no_harm(cloud: Azure, minutes: int) -> None:
    cloud.entra.tolerance = 300
    await cloud.provider().exchange(cloud.token(now=datetime.now(UTC) + timedelta(minutes=minutes)))


@pytest.mark.parametrize(
    ("settings", "code", "remedy"),
    [
        ({"tenantId": OTHER}, "AADSTS90002", f"provider.tenantId, or provider.authority if {OTHER}"),
        ({"clientId": OTHER}, "AADSTS700016", f"provider.clientId: {OTHER}"),
        ({"scopes": ["https://nothing.example/.default"]}, "AADSTS500011", "provider.scopes: https://nothing.example/.default"),
    ],
)
async def test_what_the_tenant_does_not_know_is_rejected_with_the_setting(
    cloud: Azure, settings: dict[str, Any], code: str, remedy: str
) -> None:
    error = await failure(cloud, **settings)
    assert isinstance(error, Rejected)
    assert code in error.message
    assert remedy in error.remedy


async def test_the_same_refusal_is_told_in_the_same_words(cloud: Azure) -> None:
    messages = set()
    for _ in range(2):
        messages.add((await failure(cloud, cloud.token(aud="vault"))).message)
        messages.add((await failure(cloud, cloud.token(iat=1, exp=2))).message)
        await asyncio.sleep(0.01)
    assert len(messages) == 2
    assert not any(mark in message for message in messages for mark in ("Trace ID", "Timestamp", "Current time"))


async def test_an_issuer_that_entra_cannot_reach_is_tried_again(cloud: Azure) -> None:
    cloud.issuer.up = False
    error = await failure(cloud)
    assert isinstance(error, Unavailable)
    assert f"{cloud.issuer.url}/.well-known/openid-configuration" in error.remedy


async def test_a_generation_too_old_is_refused_and_the_next_one_is_not(cloud: Azure) -> None:
    cloud.entra.generations = 2
    now = int(datetime.now(UTC).timestamp())
    first, second, third = (cloud.token(iat=now - age) for age in (300, 200, 100))
    provider = cloud.provider()
    for token in (first, second, first, third, second):
        await provider.exchange(token)
    assert "AADSTS700024" in (await failure(cloud, first)).message


async def test_another_cloud_without_scopes_has_nothing_to_ask_for(cloud: Azure) -> None:
    error = await failure(cloud, authority="https://own.example")
    assert isinstance(error, Rejected)
    assert "provider.scopes" in error.remedy
    assert cloud.entra.requests == 0


async def test_without_a_token_there_is_nothing_to_exchange(cloud: Azure) -> None:
    with pytest.raises(Rejected, match="without a token"):
        await cloud.provider().exchange(None)
    assert cloud.entra.requests == 0


def delivered(files: Any) -> PriorDelivery:
    now = datetime.now(UTC)
    delivery = Delivery(
        generation=0,
        token_issued_at=now,
        token_expires_at=now + timedelta(hours=1),
        credential_issued_at=now,
        credential_expires_at=now + timedelta(hours=1),
    )
    return PriorDelivery(token=Secret("x"), files=files, delivery=delivery)


async def test_exchange_false_leaves_all_of_it_to_the_sdk(cloud: Azure) -> None:
    provider = cloud.provider(exchange=False)
    credential = await provider.exchange(cloud.token())
    assert (provider.host, credential.issued_at, credential.expires_at, dict(credential.document())) == ("", None, None, {})
    restored = provider.restore(delivered(credential.files(PATHS)))
    assert restored is not None
    assert restored.files(PATHS) == credential.files(PATHS)
    assert cloud.entra.requests == 0
    assert azure_settings(exchange=False).variants() == ()


async def test_an_access_token_lies_in_no_file_so_that_none_is_restored(cloud: Azure) -> None:
    provider = cloud.provider()
    credential = await provider.exchange(cloud.token())
    files = credential.files(PATHS)
    assert set(files) == {"credentialsFile", "config"}
    assert not any(credential.document()["access_token"].reveal() in text.reveal() for text in files.values())
    assert provider.restore(delivered(files)) is None


async def test_the_dotenv_says_what_the_sdks_of_azure_read(cloud: Azure) -> None:
    text = (await cloud.provider().exchange(cloud.token())).files(PATHS)["credentialsFile"].reveal()
    assert text == (
        f"AZURE_CLIENT_ID={CLIENT}\n"
        f"AZURE_TENANT_ID={TENANT}\n"
        "AZURE_FEDERATED_TOKEN_FILE=/var/run/identities/vault-reader/token\n"
        "AZURE_AUTHORITY_HOST=https://login.microsoftonline.com/\n"
    )


async def test_a_renamed_token_is_the_one_that_is_pointed_to(cloud: Azure) -> None:
    paths = Paths(directory=PurePosixPath("/a b"), names={"token": "azure-identity-token"})
    files = (await cloud.provider(exchange=False, authority="china").exchange(cloud.token())).files(paths)
    assert "AZURE_FEDERATED_TOKEN_FILE='/a b/azure-identity-token'\n" in files["credentialsFile"].reveal()
    assert "AZURE_AUTHORITY_HOST=https://login.chinacloudapi.cn/\n" in files["credentialsFile"].reveal()


@pytest.mark.parametrize(
    ("authority", "cloud_name"),
    [
        ("public", "AzurePublicCloud"),
        ("usgovernment", "AzureUSGovernmentCloud"),
        ("china", "AzureChinaCloud"),
        ("https://own.example", None),
    ],
)
async def test_azure_json_is_what_the_kubernetes_cloud_provider_reads(cloud: Azure, authority: str, cloud_name: str | None) -> None:
    provider = cloud.provider(format="azure.json", exchange=False, authority=authority)
    files = (await provider.exchange(cloud.token())).files(PATHS)
    assert json.loads(files["credentialsFile"].reveal()) == {
        **({"cloud": cloud_name} if cloud_name else {}),
        "tenantId": TENANT,
        "aadClientId": CLIENT,
        "aadFederatedTokenFile": "/var/run/identities/vault-reader/token",
        "useFederatedWorkloadIdentityExtension": True,
    }
    assert json.loads(files["config"].reveal())["clientID"] == CLIENT


def test_the_environment_is_one_way_only() -> None:
    found = azure_settings(authority="usgovernment").environment("vault-reader", PATHS)
    assert found.values == {
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_TENANT_ID": TENANT,
        "AZURE_FEDERATED_TOKEN_FILE": "/var/run/identities/vault-reader/token",
        "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.us/",
    }
    assert {"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_TOKEN_CREDENTIALS", "IDENTITY_ENDPOINT"} <= set(found.unset)
    assert not set(found.unset) & set(found.values)


def test_the_trust_to_create_is_what_the_servers_of_these_tests_demand() -> None:
    trust = azure_settings().trust(issuer="https://issuer.example", subject=SUBJECT)
    assert trust.credential() == {
        "name": trust.name,
        "issuer": "https://issuer.example",
        "subject": SUBJECT,
        "audiences": ["api://AzureADTokenExchange"],
    }
    lines = trust.lines()
    assert lines[0] == "az cloud set --name AzureCloud"
    created = next(line for line in lines if line.startswith("az ad app federated-credential create"))
    assert json.loads(created.partition("--parameters '")[2].rstrip("'")) == trust.credential()
    assert any(f"--subject {SUBJECT}" in line for line in lines)
    china = azure_settings(authority="china").trust(issuer="http://issuer.example", subject="it's").lines()
    assert "az cloud set --name AzureChinaCloud" in china
    assert "not an https URL" in china[0]
    assert any("""--subject 'it'"'"'s'""" in line for line in china)


@pytest.mark.parametrize(
    "claims", [{"issuer": "https://x\nrm -rf ~"}, {"issuer": "https://x y"}, {"subject": "a\nrm -rf ~"}, {"subject": "\x1b[2J"}], ids=str
)
def test_no_token_writes_a_command(claims: dict[str, str]) -> None:
    assert azure_settings().trust(**{"issuer": "https://issuer.example", "subject": SUBJECT, **claims}).lines() == []


@pytest.mark.parametrize("directory", ["/run/a b", "/run/$HOME", "/run/it's mine", '/run/"mine"', "/run/back\\slash", "/run/é"])
async def test_a_dotenv_reader_gets_the_exact_token_path(cloud: Azure, directory: str) -> None:
    text = (await cloud.provider().exchange(cloud.token())).files(Paths(directory=PurePosixPath(directory)))["credentialsFile"].reveal()
    assert dotenv_values(stream=StringIO(text), interpolate=True)["AZURE_FEDERATED_TOKEN_FILE"] == f"{directory}/token"


@pytest.mark.parametrize("directory", ["/run/a b", "/run/$HOME", "/run/${HOME}", "/run/`id`", "/run/é"])
async def test_a_shell_that_sources_the_dotenv_expands_nothing(cloud: Azure, directory: str) -> None:
    text = (await cloud.provider().exchange(cloud.token())).files(Paths(directory=PurePosixPath(directory)))["credentialsFile"].reveal()
    done = subprocess.run(["/bin/sh", "-euc", f'{text}printf %s "$AZURE_FEDERATED_TOKEN_FILE"'], capture_output=True, text=True, check=True)
    assert done.stdout == f"{directory}/token"
