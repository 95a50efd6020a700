"""What the files and variables of an identity in Google Cloud say, and what is read back of them; in GKE, too."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from agent.errors import NotReady, Rejected
from agent.model import Prepares, PriorDelivery, Secret
from agent.providers.gcp.credentials import AccessToken
from tests.providers.gcp.case import MIDDLE, PATHS, STATUS, delivered, failure
from tests.servers.gcp import ACCOUNT, GKE_AUDIENCE, PATH, Google, answer, gcp_settings, google


@pytest.fixture
async def cloud() -> AsyncIterator[Google]:
    async with google() as one:
        yield one


async def test_in_gke_the_cluster_is_asked_for_at_the_first_token_and_once(cloud: Google) -> None:
    provider = cloud.provider(gke=True, metadataEndpoint=cloud.gcp.url, serviceAccount=ACCOUNT)
    assert isinstance(provider, Prepares)
    assert (provider.audiences, cloud.gcp.requests) == ((), 0)
    await provider.prepare()
    assert provider.audiences == ("gke-project.svc.id.goog",)
    credential = await provider.exchange(cloud.token(aud="gke-project.svc.id.goog"))
    await provider.exchange(cloud.token(aud="gke-project.svc.id.goog"))
    assert [path for path, _ in cloud.gcp.asked].count("/computeMetadata/v1/project/project-id") == 1
    external = json.loads(credential.files(PATHS)["credentialsFile"].reveal())
    assert external["audience"] == GKE_AUDIENCE
    restored = cloud.provider(gke=True, serviceAccount=ACCOUNT).restore(delivered(credential))
    assert restored is not None
    assert restored.files(PATHS) == credential.files(PATHS)
    for config in ("", "[]", "{}", '{"audience": 5}', '{"audience": "//evil"}'):
        prior = delivered(credential)
        assert cloud.provider(gke=True).restore(replace(prior, files={**prior.files, "config": Secret(config)})) is None


async def test_a_metadata_server_that_is_not_there_yet_is_waited_for(cloud: Google) -> None:
    settings = {"gke": True, "metadataEndpoint": cloud.gcp.url}
    for place, text in (
        ("project/project-id", ""),
        ("instance/attributes/cluster-name", "a b"),
        ("instance/attributes/cluster-name", "x/y"),
    ):
        known, cloud.gcp.cluster[place] = cloud.gcp.cluster[place], text
        assert isinstance(await failure(cloud, **settings), NotReady)
        cloud.gcp.cluster[place] = known
    cloud.gcp.instead = answer(503, "", path="project-id")
    assert isinstance(await failure(cloud, **settings), NotReady)
    cloud.gcp.instead = answer(200, "some-project", path="project-id")
    error = await failure(cloud, **settings)
    assert isinstance(error, Rejected)
    assert "it is not GKE's metadata server" in error.message, "it sends no Metadata-Flavor"
    cloud.gcp.instead = answer(404, "", path="project-id")
    assert "provider.gke" in (await failure(cloud, **settings)).remedy


async def test_the_metadata_server_is_not_asked_over_the_proxy(cloud: Google) -> None:
    provider = cloud.provider(gke=True, metadataEndpoint=cloud.gcp.url, proxy="http://127.0.0.1:9", caFile="/nowhere")
    await provider.prepare()
    assert provider.audiences == ("gke-project.svc.id.goog",)


async def test_in_gke_a_refusal_names_the_clusters_pool(cloud: Google) -> None:
    settings = {"gke": True, "metadataEndpoint": cloud.gcp.url, "serviceAccount": ACCOUNT}
    for claims in ({"aud": "vault"}, {"iss": "https://issuer.example"}, {"iat": 1, "exp": 2}):
        assert isinstance(await failure(cloud, cloud.token(**claims), **settings), Rejected)
    error = await failure(cloud, cloud.token(aud="gke-project.svc.id.goog", sub="system:serviceaccount:demo:other"), **settings)
    assert "subject/ns/demo/sa/other" in error.remedy


async def test_exchange_false_leaves_all_of_it_to_the_sdk(cloud: Google) -> None:
    provider = cloud.provider(exchange=False)
    credential = await provider.exchange(cloud.token())
    assert (provider.host, credential.issued_at, credential.expires_at, dict(credential.document())) == ("", None, None, {})
    assert set(credential.files(PATHS)) == {"credentialsFile", "config"}
    restored = provider.restore(delivered(credential))
    assert restored is not None
    assert restored.files(PATHS) == credential.files(PATHS)
    assert cloud.gcp.requests == 0


async def test_what_a_sink_left_is_the_same_credential(cloud: Google) -> None:
    provider = cloud.provider(serviceAccount=ACCOUNT)
    credential = await provider.exchange(cloud.token())
    restored = provider.restore(delivered(credential))
    assert isinstance(restored, AccessToken)
    assert replace(restored, token_file=credential.token_file) == credential
    assert restored.files(PATHS) == credential.files(PATHS)


@pytest.mark.parametrize("text", [None, "", "one\ntwo", "a b", "x" * 20000], ids=lambda text: str(text)[:9])
async def test_what_is_no_token_is_not_restored(cloud: Google, text: str | None) -> None:
    provider = cloud.provider()
    prior = delivered(await provider.exchange(cloud.token()))
    files = {name: secret for name, secret in prior.files.items() if name != "credentials"}
    if text is not None:
        files["credentials"] = Secret(text)
    assert provider.restore(PriorDelivery(token=None, files=files, delivery=prior.delivery)) is None


async def test_the_token_file_form_has_source_file_and_exactly_one_of_two_urls(cloud: Google) -> None:
    direct = json.loads((await cloud.provider().exchange(cloud.token())).files(PATHS)["credentialsFile"].reveal())
    assert direct == {
        "universe_domain": "googleapis.com",
        "type": "external_account",
        "audience": f"//iam.googleapis.com/{PATH}",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{cloud.gcp.url}/v1/token",
        "credential_source": {"file": "/var/run/identities/reader/token", "format": {"type": "text"}},
        "token_info_url": f"{cloud.gcp.url}/v1/introspect",
    }
    settings = {"serviceAccount": ACCOUNT, "lifetime": "2h"}
    acting = json.loads((await cloud.provider(**settings).exchange(cloud.token())).files(PATHS)["credentialsFile"].reveal())
    assert "token_info_url" not in acting
    assert acting["service_account_impersonation_url"] == f"{cloud.gcp.url}{STATUS}{ACCOUNT}:generateAccessToken"
    assert acting["service_account_impersonation"] == {"token_lifetime_seconds": 7200}


async def test_the_places_are_those_of_the_universe_and_the_audience_is_not(cloud: Google) -> None:
    settings = gcp_settings(universeDomain="apis-s3ns.fr", serviceAccount=ACCOUNT, exchange=False)
    from agent.providers.gcp.provider import GcpProvider

    credential = await GcpProvider(settings, "reader", cloud.toolbox).exchange(None)
    external = json.loads(credential.files(PATHS)["credentialsFile"].reveal())
    assert external["token_url"] == "https://sts.apis-s3ns.fr/v1/token"
    assert external["service_account_impersonation_url"].startswith("https://iamcredentials.apis-s3ns.fr/v1/")
    assert (external["universe_domain"], external["audience"]) == ("apis-s3ns.fr", f"//iam.googleapis.com/{PATH}")
    assert settings.environment("reader", PATHS).values["GOOGLE_CLOUD_UNIVERSE_DOMAIN"] == "apis-s3ns.fr"


PROJECTS: list[tuple[dict[str, Any], str | None]] = [
    ({}, "123456789012"),
    ({"project": "mine"}, "mine"),
    ({"serviceAccount": ACCOUNT}, "demo-project"),
    ({"serviceAccount": "sa@proj.example.com.iam.gserviceaccount.com"}, "example.com:proj"),
    ({"serviceAccount": "77-compute@developer.gserviceaccount.com"}, "77"),
    ({"serviceAccount": "proj@appspot.gserviceaccount.com"}, "proj"),
    ({"gke": True}, None),
]


@pytest.mark.parametrize(("settings", "project"), PROJECTS, ids=str)
def test_the_project_is_named_so_that_no_sdk_has_to_ask_for_it(settings: dict[str, Any], project: str | None) -> None:
    values = gcp_settings(**settings).environment("reader", PATHS).values
    assert values.get("GOOGLE_CLOUD_PROJECT") == values.get("CLOUDSDK_CORE_PROJECT") == project


def test_gcloud_takes_the_exchanged_token_and_else_the_file_of_the_token() -> None:
    folder = PATHS.directory
    exchanged = gcp_settings().environment("reader", PATHS)
    assert exchanged.values["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"] == f"{folder}/credentials"
    assert exchanged.values["GOOGLE_APPLICATION_CREDENTIALS"] == f"{folder}/credentialsFile"
    assert "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE" in exchanged.unset
    left = gcp_settings(exchange=False).environment("reader", PATHS)
    assert left.values["CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"] == f"{folder}/credentialsFile"
    assert "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE" in left.unset
    narrowed = gcp_settings(serviceAccount=ACCOUNT, delegates=[MIDDLE]).environment("reader", PATHS)
    assert "GOOGLE_APPLICATION_CREDENTIALS" in narrowed.unset
