"""The exchange with Google as it goes well, and what it takes and loads on the way."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.errors import Rejected
from agent.model import Secret
from agent.providers.gcp import requests
from tests.fakes import FakeClock
from tests.providers.gcp.case import MIDDLE, PATHS, READ_ONLY, SCOPES, STATUS, failure
from tests.servers.gcp import ACCOUNT, AUDIENCE, PATH, Google, google
from tests.servers.issuer import SUBJECT
from tests.servers.tls import certificate


@pytest.fixture
async def cloud() -> AsyncIterator[Google]:
    async with google() as one:
        yield one


async def test_a_token_becomes_an_access_token_of_the_identity_itself(cloud: Google) -> None:
    before = datetime.now(UTC)
    provider = cloud.provider()
    credential = await provider.exchange(cloud.token())
    token = credential.document()["access_token"]
    session = cloud.gcp.sessions[token.reveal()]
    assert (session.principal, " ".join(session.scopes)) == (SUBJECT, SCOPES)
    assert credential.issued_at is not None
    assert credential.expires_at is not None
    assert before <= credential.issued_at <= datetime.now(UTC)
    assert timedelta(minutes=59) < credential.expires_at - credential.issued_at <= timedelta(hours=1)
    assert credential.files(PATHS)["credentials"] == token
    assert provider.host == f"127.0.0.1:{cloud.gcp.port}"
    assert provider.audiences == (AUDIENCE,)
    (path, sent) = cloud.gcp.asked[0]
    assert (path, sent["audience"]) == ("/v1/token", f"//iam.googleapis.com/{PATH}")
    assert token.reveal() not in repr(credential)
    assert len(cloud.gcp.asked) == 1


async def test_a_service_account_is_acted_as_with_a_token_that_can_do_nothing_else(cloud: Google) -> None:
    credential = await cloud.provider(serviceAccount=ACCOUNT, lifetime="2h", scopes=[READ_ONLY]).exchange(cloud.token())
    session = cloud.gcp.sessions[credential.document()["access_token"].reveal()]
    assert (session.principal, session.scopes, credential.document()["service_account"]) == (ACCOUNT, (READ_ONLY,), ACCOUNT)
    (_, first), (path, second) = cloud.gcp.asked
    assert first["scope"] == "https://www.googleapis.com/auth/iam"
    assert path == f"{STATUS}{ACCOUNT}:generateAccessToken"
    assert (second["lifetime"], second["scope"], second["delegates"]) == ("7200s", [READ_ONLY], None)
    assert credential.expires_at == session.expires_at.replace(microsecond=0)


async def test_delegates_lead_to_the_service_account(cloud: Google) -> None:
    cloud.gcp.users = {MIDDLE: SUBJECT, ACCOUNT: MIDDLE}
    credential = await cloud.provider(serviceAccount=ACCOUNT, delegates=[MIDDLE]).exchange(cloud.token())
    assert cloud.gcp.asked[-1][1]["delegates"] == [f"projects/-/serviceAccounts/{MIDDLE}"]
    assert set(credential.files(PATHS)) == {"config", "credentials"}, "a file of external account credentials names no delegates"
    error = await failure(cloud, serviceAccount=ACCOUNT)
    assert isinstance(error, Rejected)


async def test_scopes_asked_for_at_run_time_replace_the_configured_ones(cloud: Google) -> None:
    variant = f"{READ_ONLY} openid"
    for settings in ({}, {"serviceAccount": ACCOUNT}):
        credential = await cloud.provider(**settings).exchange(cloud.token(), variant)
        assert " ".join(cloud.gcp.sessions[credential.document()["access_token"].reveal()].scopes) == variant
        assert credential.document()["scopes"] == tuple(variant.split(" "))


async def test_scopes_that_are_not_allowed_are_refused_and_not_sent(cloud: Google) -> None:
    provider = cloud.provider(scopes=[READ_ONLY], scopesAllowed=["openid"])
    for variant in ("", "openid", f"{READ_ONLY} openid"):
        await provider.exchange(cloud.token(), variant)
    asked = len(cloud.gcp.asked)
    with pytest.raises(Rejected, match="not allowed") as refused:
        await provider.exchange(cloud.token(), "email openid")
    assert refused.value.remedy == "name them in provider.scopesAllowed"
    assert len(cloud.gcp.asked) == asked


async def test_an_id_token_is_of_the_service_account_and_for_one_audience(cloud: Google) -> None:
    cloud.gcp.users = {MIDDLE: SUBJECT, ACCOUNT: MIDDLE}
    provider = cloud.provider(serviceAccount=ACCOUNT, delegates=[MIDDLE])
    credential = await provider.exchange(cloud.token(), "id:https://run.example/?a=b")
    import jwt

    claims = jwt.decode(credential.document()["id_token"].reveal(), options={"verify_signature": False})
    assert (claims["aud"], claims["email"]) == ("https://run.example/?a=b", ACCOUNT)
    assert credential.expires_at == datetime.fromtimestamp(claims["exp"], UTC)
    assert "credentials" not in credential.files(PATHS)


async def test_there_is_no_id_token_without_a_service_account(cloud: Google) -> None:
    for variant, settings in (
        ("id:https://run.example", {}),
        ("id:", {"serviceAccount": ACCOUNT}),
        ("id:a b", {"serviceAccount": ACCOUNT}),
    ):
        error = await failure(cloud, variant=variant, **settings)
        assert isinstance(error, Rejected)
    assert cloud.gcp.requests == 0


async def test_a_grant_of_thirty_seconds_is_taken_as_it_is(cloud: Google) -> None:
    cloud.gcp.lifetime = 30
    for settings in ({}, {"serviceAccount": ACCOUNT}):
        credential = await cloud.provider(**settings).exchange(cloud.token())
        assert credential.expires_at is not None
        assert timedelta(seconds=25) < credential.expires_at - datetime.now(UTC) <= timedelta(seconds=30)


async def test_each_exchange_sends_each_request_once_and_a_new_token(cloud: Google) -> None:
    provider = cloud.provider(serviceAccount=ACCOUNT)
    found = [await provider.exchange(cloud.token()) for _ in range(3)]
    assert len({one.document()["access_token"].reveal() for one in found}) == 3
    assert len(cloud.gcp.asked) == 6
    assert len({session.jti for session in cloud.gcp.sessions.values()}) == 3


async def test_the_times_are_those_of_the_agents_clock() -> None:
    clock = FakeClock()
    async with google(clock=clock) as cloud:
        credential = await cloud.provider().exchange(cloud.token())
        assert credential.issued_at == clock.now()
        assert credential.expires_at is not None
        assert timedelta(minutes=59) < credential.expires_at - clock.now() <= timedelta(hours=1)


async def test_a_question_shows_nothing_of_what_it_carries() -> None:
    target = gcp_errand()
    first = requests.access_token(target, Secret("canary-one"))
    second = requests.access_token(target, Secret("canary-one"), Secret("canary-two"))
    assert b"canary-one" in first.body
    assert b"canary" not in second.body
    assert second.headers["authorization"] == "Bearer canary-two"
    assert "canary" not in repr(first) + repr(second)


async def test_going_through_a_refresh_again_asks_the_same_again() -> None:
    target = gcp_errand()
    assert requests.access_token(target, Secret("a")) == requests.access_token(target, Secret("a"))
    assert requests.access_token(target, Secret("a"), Secret("b")) == requests.access_token(target, Secret("c"), Secret("b"))


def gcp_errand() -> Any:
    from agent.providers.gcp.targets import Account, ExchangeTarget

    account = Account(email=ACCOUNT, base="https://iamcredentials.googleapis.com")
    return ExchangeTarget(base="https://sts.googleapis.com", audience="//x", universe="googleapis.com", scopes=("s",), account=account)


async def test_a_cancelled_exchange_is_cancelled_and_the_next_one_works(cloud: Google) -> None:
    cloud.gcp.hanging = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await cloud.provider().exchange(cloud.token())
    cloud.gcp.hanging = False
    await cloud.provider().exchange(cloud.token())


async def test_slow_exchanges_run_beside_each_other_and_no_thread_waits(cloud: Google) -> None:
    import threading

    await cloud.provider().exchange(cloud.token())  # imports
    cloud.gcp.delay = 0.3
    before, began = threading.active_count(), asyncio.get_running_loop().time()
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, threading.active_count())
            await asyncio.sleep(0.01)

    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*(cloud.provider().exchange(cloud.token()) for _ in range(8)))
    watching.cancel()
    assert asyncio.get_running_loop().time() - began < 1.2
    assert most == before


async def test_tls_is_verified_against_the_configured_authority_and_name(tmp_path: Path) -> None:
    tls, ca = certificate(tmp_path, "127.0.0.1")
    async with google(tls=tls) as cloud:
        assert isinstance(await failure(cloud), Rejected), "not the system's"
        await cloud.provider(caFile=ca, serviceAccount=ACCOUNT).exchange(cloud.token())
    tls, ca = certificate(tmp_path, "sts.googleapis.com")
    async with google(tls=tls) as cloud:
        error = await failure(cloud, caFile=ca)
        assert isinstance(error, Rejected)
        assert "certificate" in error.message
        assert cloud.gcp.requests == 0


TRAPS = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "ALL_PROXY": "http://127.0.0.1:9",
    "SSL_CERT_FILE": "/nowhere",
    "REQUESTS_CA_BUNDLE": "/nowhere",
    "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere",
    "GOOGLE_CLOUD_PROJECT": "evil",
    "GOOGLE_CLOUD_QUOTA_PROJECT": "evil",
    "GOOGLE_CLOUD_UNIVERSE_DOMAIN": "evil.example",
    "GOOGLE_API_USE_CLIENT_CERTIFICATE": "true",
    "GOOGLE_API_CERTIFICATE_CONFIG": "/nowhere",
    "GCE_METADATA_HOST": "127.0.0.1:9",
    "GCE_METADATA_IP": "127.0.0.1:9",
    "GCE_METADATA_ROOT": "127.0.0.1:9",
    "CLOUDSDK_CONFIG": "/nowhere",
}


async def test_nothing_is_taken_from_the_environment(cloud: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TRAPS.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.lower(), value)
    await cloud.provider(serviceAccount=ACCOUNT).exchange(cloud.token())
    in_cluster = cloud.provider(gke=True, metadataEndpoint=cloud.gcp.url)
    await in_cluster.exchange(cloud.token(aud="gke-project.svc.id.goog"))
    assert cloud.gcp.requests == 2 + 3 + 1


async def test_without_a_token_there_is_nothing_to_exchange(cloud: Google) -> None:
    with pytest.raises(Rejected, match="without a token"):
        await cloud.provider().exchange(None)
    assert cloud.gcp.requests == 0


def test_no_other_cloud_and_no_client_of_google_is_ever_loaded() -> None:
    script = """
import asyncio, sys
from tests.servers.gcp import ACCOUNT, google
assert not any(name.split(".")[0] == "google" for name in sys.modules), "before an exchange is wanted"
async def main():
    async with google() as cloud:
        await cloud.provider(serviceAccount=ACCOUNT).exchange(cloud.token())
asyncio.run(main())
assert "google.auth.identity_pool" in sys.modules
others = {"botocore", "aiobotocore", "boto3", "azure", "msal", "alibabacloud_credentials", "kubernetes_asyncio", "requests", "urllib3"}
print(sorted(others & {name.split(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"
