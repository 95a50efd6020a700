"""What every provider owes the agent, whatever its cloud: the right reaction to each answer, and silence about secrets."""

import asyncio
import gc
import json
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import msgspec
import pytest
from aiohttp import web

from agent.errors import RefreshError, Rejected, Unavailable
from agent.model import Credential, Delivery, IdentityToken, Paths, PriorDelivery, Secret
from agent.providers import ProviderSettings
from agent.settings import encode_scalar
from tests.conformance.conftest import NAMES
from tests.conformance.subject import IDENTITY, Cloud, Subject
from tests.servers.issuer import rsa_key
from tests.servers.site import Site
from tests.servers.tls import certificate

PATHS = Paths(directory=PurePosixPath("/var/run/identities/reader"))
ELSEWHERE = Paths(directory=PurePosixPath("/mnt/other"), names={"token": "jwt"})
SDKS = {"aiobotocore", "botocore", "azure", "msal", "google", "cryptography", "jwt", "requests", "kubernetes_asyncio"}
UNDERNEATH = {"cryptography", "jwt", "requests"}
"""What SDKs bring with them: no cloud of its own."""


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and all that stands behind it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def quiet(error: BaseException, subject: Subject, token: IdentityToken) -> None:
    """Nothing of the token, and nothing that was granted, can be read from the exception or from behind it."""
    secrets = [*token.value.reveal().split("."), *subject.granted()]
    for one in chain(error):
        told = (str(one), repr(one), repr(one.args), repr(vars(one)), *getattr(one, "__notes__", ()))
        assert not [text for text in told if any(secret in text for secret in secrets)]


async def failure(subject: Subject, token: IdentityToken | None = None, **settings: Any) -> RefreshError:
    """What the exchange raises, after a look at what it says."""
    token = token or subject.token()
    with pytest.raises(RefreshError) as caught:
        await subject.provider(**settings).exchange(token)
    assert caught.value.message.startswith(f"{IDENTITY}: ")
    quiet(caught.value, subject, token)
    return caught.value


def set_knob(subject: Subject, **knobs: Any) -> None:
    for name, value in knobs.items():
        assert hasattr(subject.server, name)
        setattr(subject.server, name, value)


def delivered(credential: Credential) -> PriorDelivery:
    """As a sink hands it back after a restart."""
    times = {"credential_issued_at": credential.issued_at, "credential_expires_at": credential.expires_at}
    delivery = Delivery(generation=0, token_issued_at=None, token_expires_at=None, **times)
    return PriorDelivery(token=None, files=credential.files(PATHS), delivery=delivery)


def test_every_provider_is_in_the_suite() -> None:
    assert {kind.__struct_config__.tag for kind in get_args(ProviderSettings)} == set(NAMES)


async def test_a_token_becomes_a_credential_that_knows_its_own_clock(asked: Subject) -> None:
    before, provider = datetime.now(UTC), asked.provider()
    token = asked.token()
    credential = await provider.exchange(token)
    assert set(provider.audiences) & set(token.audiences)
    assert provider.host == f"127.0.0.1:{asked.server.port}"
    assert credential.issued_at is not None
    assert credential.expires_at is not None
    assert before <= credential.issued_at <= datetime.now(UTC) < credential.expires_at < before + timedelta(hours=13)
    assert asked.granted()
    assert not any(secret in text for secret in asked.granted() for text in (repr(credential), repr(credential.document()), repr(provider)))


@pytest.mark.parametrize("wrong", ["audience", "subject", "expired", "key"])
async def test_a_token_that_is_not_trusted_is_rejected_with_the_clouds_code_and_a_remedy(
    exchanging: Cloud, asked: Subject, wrong: str
) -> None:
    claims: dict[str, Any] = {
        "audience": {"aud": "somebody-else"},
        "subject": {"sub": "system:serviceaccount:demo:somebody-else"},
        "expired": {"iat": 1, "exp": 2},
        "key": {"key": rsa_key("stranger")},
    }[wrong]
    error = await failure(asked, asked.token(**claims))
    assert isinstance(error, Rejected)
    assert exchanging.codes[wrong] in error.message
    assert len(error.remedy) > 10
    assert not asked.granted()


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_trouble_is_unavailable_asked_once_and_its_retry_after_is_passed_on(exchanging: Cloud, asked: Subject, status: int) -> None:
    for answer in (exchanging.troubled(status, Retry_After="7"), exchanging.page(status, "<html>busy", Retry_After="7")):
        set_knob(asked, instead=answer, requests=0)
        error = await failure(asked)
        assert isinstance(error, Unavailable)
        assert error.retry_after == 7
        assert str(status) in error.message
        assert asked.server.requests == 1, "the keeper is the only retrier"


async def test_silence_is_unavailable_after_the_patience(exchanging: Cloud) -> None:
    async with exchanging.open(patience=0.2) as subject:
        set_knob(subject, hanging=True)
        error = await failure(subject)
        assert isinstance(error, Unavailable)
        assert "did not answer within 0.2 s" in error.message
        set_knob(subject, hanging=False)
        await subject.provider().exchange(subject.token())


async def test_a_cancelled_exchange_is_cancelled_and_the_next_one_works(asked: Subject) -> None:
    await asked.provider().exchange(asked.token())
    set_knob(asked, hanging=True)
    provider, token = asked.provider(), asked.token()
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(0.2):
            await provider.exchange(token)
    quiet(caught.value, asked, token)
    set_knob(asked, hanging=False)
    await provider.exchange(token)


@pytest.mark.parametrize("text", ["<!doctype html><title>Sign in</title>", "", "[]", "null", "{}", '{"a": ', "\x00\xff"], ids=repr)
async def test_an_answer_that_is_not_of_the_cloud_is_unavailable(exchanging: Cloud, asked: Subject, text: str) -> None:
    set_knob(asked, instead=exchanging.page(200, text))
    assert isinstance(await failure(asked), Unavailable)


async def test_an_answer_without_end_is_not_read_to_its_end(exchanging: Cloud, asked: Subject) -> None:
    set_knob(asked, instead=exchanging.page(200, "x" * 300_000))
    assert isinstance(await failure(asked), Unavailable)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed(exchanging: Cloud, asked: Subject, status: int) -> None:
    async with Site() as elsewhere:
        set_knob(asked, instead=exchanging.page(status, "", Location=f"{elsewhere.url}/?{asked.token().value.reveal()}"))
        error = await failure(asked)
        assert isinstance(error, Rejected)
        assert "redirects to 127.0.0.1" in error.message
        assert elsewhere.requests == 0


async def test_a_token_is_not_sent_to_who_shows_another_hosts_certificate(exchanging: Cloud, tmp_path: Path) -> None:
    context, pem = certificate(tmp_path, "sts.example")
    async with exchanging.open(tls=context) as subject:
        error = await failure(subject, caFile=pem)
        assert isinstance(error, Rejected)
        assert "certificate" in error.message
        assert subject.server.requests == 0
    context, pem = certificate(tmp_path, "127.0.0.1")
    async with exchanging.open(tls=context) as subject:
        assert isinstance(await failure(subject), Rejected), "who signed it is not known"
        await subject.provider(caFile=pem).exchange(subject.token())


async def test_a_grant_without_a_sensible_end_is_unavailable(exchanging: Cloud, asked: Subject) -> None:
    now = datetime.now(UTC)
    set_knob(asked, instead=exchanging.grant(now + timedelta(hours=1)))
    await asked.provider().exchange(asked.token())
    ends = [None, now - timedelta(hours=1), now - timedelta(seconds=2), now + timedelta(days=4000), now + timedelta(days=365 * 400)]
    for number, answer in enumerate([*map(exchanging.grant, ends), *exchanging.senseless]):
        set_knob(asked, instead=answer)
        assert isinstance(await failure(asked), Unavailable), number


async def test_whatever_answers_the_token_is_not_repeated(exchanging: Cloud, asked: Subject) -> None:
    token = asked.token()
    for status in (200, 400, 401, 403, 404, 500):
        set_knob(asked, instead=exchanging.page(status, token.value.reveal(), X_Echo="x"))
        await failure(asked, token)

    def echo(request: web.BaseRequest) -> web.StreamResponse:
        words = token.value.reveal()
        told = {"error": words, "error_description": words, "Code": words, "Message": words, "message": words, "error_codes": [words]}
        return web.json_response(told, status=400, headers={"Retry-After": words[:40]})

    set_knob(asked, instead=echo)
    await failure(asked, token)


async def test_the_files_point_to_where_the_consumer_finds_them(cloud: Cloud, subject: Subject) -> None:
    credential = await subject.provider().exchange(subject.token())
    here, there = credential.files(PATHS), credential.files(ELSEWHERE)
    assert set(here) == set(there) == cloud.files | cloud.kept
    assert all(isinstance(text, Secret) and text.reveal() for text in here.values())
    if "credentialsFile" in cloud.files:
        assert PATHS.path("token") in here["credentialsFile"].reveal()
        assert ELSEWHERE.path("token") == "/mnt/other/jwt"
        assert ELSEWHERE.path("token") in there["credentialsFile"].reveal()
        assert "/var/run/identities" not in there["credentialsFile"].reveal()
    assert {name: text for name, text in here.items() if name in cloud.kept} == {
        name: text for name, text in there.items() if name in cloud.kept
    }
    secrets = subject.granted()
    assert not any(secret in here[name].reveal() for secret in secrets for name in cloud.files)
    assert all(any(secret in here[name].reveal() for secret in secrets) for name in cloud.kept)


async def test_the_document_holds_secrets_as_secrets_and_times_with_their_zone(subject: Subject, cloud: Cloud) -> None:
    document = (await subject.provider().exchange(subject.token())).document()
    assert bool(document) is cloud.exchanges
    secrets = subject.granted()
    for value in document.values():
        assert not (isinstance(value, str) and value in secrets)
        if isinstance(value, datetime):
            assert value.utcoffset() is not None


async def test_a_restart_finds_what_the_files_hold_and_nothing_in_what_they_do_not(cloud: Cloud, subject: Subject) -> None:
    provider = subject.provider()
    credential = await provider.exchange(subject.token())
    requests, prior = subject.server.requests, delivered(credential)
    restored = provider.restore(prior)
    if cloud.kept or not cloud.exchanges:
        assert restored is not None
        assert restored.document() == credential.document()
        assert (restored.issued_at, restored.expires_at) == (credential.issued_at, credential.expires_at)
        assert restored.files(ELSEWHERE) == credential.files(ELSEWHERE)
    else:
        assert restored is None, "what lies in no file is asked for anew"
    if cloud.exchanges:
        for text in ("", "\x00", "{\n", "[default]\n[", "[" * 10_000 + "\n]"):
            files: Mapping[str, Secret] = {name: Secret(text) for name in prior.files}
            assert provider.restore(PriorDelivery(token=None, files=files, delivery=prior.delivery)) is None
        assert provider.restore(PriorDelivery(token=None, files={}, delivery=prior.delivery)) is None
    assert subject.server.requests == requests


async def test_exchange_false_sends_nothing_and_leaves_the_sdk_all_it_needs(exchanging: Cloud, asked: Subject) -> None:
    provider = asked.provider(exchange=False)
    credential = await provider.exchange(asked.token())
    assert (provider.host, credential.issued_at, credential.expires_at, dict(credential.document())) == ("", None, None, {})
    assert set(credential.files(PATHS)) == exchanging.files
    restored = provider.restore(delivered(credential))
    assert restored is not None
    assert restored.files(PATHS) == credential.files(PATHS)
    assert asked.server.requests == 0


async def test_without_a_token_nothing_is_sent(asked: Subject) -> None:
    with pytest.raises(Rejected) as caught:
        await asked.provider().exchange(None)
    assert caught.value.remedy
    assert asked.server.requests == 0


async def test_no_userinfo_of_the_settings_gets_into_a_file_or_an_error(exchanging: Cloud, asked: Subject) -> None:
    proxy = "http://user:canary@127.0.0.1:9"
    credential = await asked.provider(proxy=proxy, exchange=False).exchange(asked.token())
    assert json.loads(credential.files(PATHS)["config"].reveal())
    assert not any("canary" in text.reveal() for text in credential.files(PATHS).values())
    asking = asked.provider(proxy=proxy)
    with pytest.raises(RefreshError) as caught:
        await asking.exchange(asked.token())
    assert not any("canary" in text for one in chain(caught.value) for text in (str(one), repr(one), repr(one.args)))
    assert "canary" not in repr(asking)
    told = dict(asked.settings(endpoint="https://user:canary@sts.example").faults())
    assert "canary" not in told["endpoint"], "which needs none, and so takes none"


async def test_fifty_exchanges_take_one_connection_and_leave_nothing_behind(asked: Subject) -> None:
    peers, answer = set(), asked.server.answer

    async def counting(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport
        peers.add(request.transport.get_extra_info("peername"))
        return await answer(request)

    asked.server.answer = counting  # type: ignore[method-assign]
    provider = asked.provider()
    for _ in range(10):
        await provider.exchange(asked.token())
    before = census()
    for _ in range(40):
        await provider.exchange(asked.token())
    grown = {kind: count - before.get(kind, 0) for kind, count in census().items() if count > before.get(kind, 0) + 2}
    assert not grown
    assert len(peers) == 1


def census() -> dict[str, int]:
    """How many objects there are of each type of the agent's, of an SDK's and of the HTTP client's."""
    gc.collect()
    found: dict[str, int] = {}
    for one in gc.get_objects():
        kind = type(one)
        if str(kind.__module__).partition(".")[0] in {"agent", "aiobotocore", "botocore", "azure", "msal", "google", "ssl"}:
            found[kind.__qualname__] = found.get(kind.__qualname__, 0) + 1
    return found


LOADED = """
import asyncio, json, sys
from datetime import UTC, datetime
from random import Random
from agent.claims import read_token
from agent.clock import WallClock
from agent.providers import ProviderSettings, build
from agent.http.session import Session
from agent.settings import convert
from agent.counters import Counters
from agent.toolbox import Resources, Toolbox

SDKS, told = json.loads(sys.argv[1]), json.load(sys.stdin)
def loaded():
    return sorted(name for name in SDKS if any(one == name or one.startswith(name + ".") for one in sys.modules))
async def main():
    async with Session() as session, Resources(session.get) as resources:
        toolbox = Toolbox(clock=WallClock(), random=Random(0), counters=Counters(), http=session.get, resources=resources)
        provider = build(convert(told["settings"], ProviderSettings), "reader", toolbox)
        provider.audiences, provider.host
        print(json.dumps(loaded()))
        await provider.exchange(read_token(told["token"], whose="the test", now=datetime.now(UTC)))
        print(json.dumps(loaded()))
asyncio.run(main())
"""


async def alone(subject: Subject, **environment: str) -> tuple[set[str], set[str]]:
    """An exchange in a process of its own with the agent's own session: the SDKs that it had loaded before, and those after."""
    settings = msgspec.json.decode(msgspec.json.encode(subject.settings(), enc_hook=encode_scalar))
    told = json.dumps({"settings": settings, "token": subject.token().value.reveal()})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOADED, json.dumps(sorted(SDKS))),
        env={"PATH": os.environ["PATH"], **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(told.encode()), 40)
    assert process.returncode == 0, err.decode()
    before, after = (set(json.loads(line)) for line in out.splitlines())
    return before, after


async def test_nothing_of_an_sdk_is_loaded_before_the_first_exchange_and_nothing_of_another_clouds_ever(
    cloud: Cloud, subject: Subject
) -> None:
    before, after = await alone(subject)
    assert before == set()
    assert after - UNDERNEATH <= cloud.modules
    assert cloud.modules <= after


async def test_nothing_of_the_environment_changes_where_the_token_goes(asked: Subject, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    proxies = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    files = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC", "AWS_CA_BUNDLE", "AWS_CONFIG_FILE")
    names = (
        *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS", "AWS_REGION", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_ACCESS_KEY_ID"),
        *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_AUTHORITY_HOST", "AZURE_CLIENT_SECRET", "AZURE_REGIONAL_AUTHORITY_NAME"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_UNIVERSE_DOMAIN", "GCE_METADATA_HOST"),
        *("ALIBABA_CLOUD_ROLE_ARN", "ALIBABA_CLOUD_STS_REGION", "ALIBABA_CLOUD_CREDENTIALS_URI"),
    )
    traps = dict.fromkeys(names, "trap") | dict.fromkeys(proxies, "http://127.0.0.1:9") | dict.fromkeys(files, str(tmp_path / "empty"))
    await alone(asked, HOME=str(tmp_path), **traps)
    assert asked.granted()
