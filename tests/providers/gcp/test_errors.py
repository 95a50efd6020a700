"""Every way in which an exchange with Google can be refused or answered wrongly, and what is said of it."""

import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent.errors import RefreshError, Rejected, Unavailable
from tests.providers.gcp.case import failure
from tests.servers.gcp import ACCOUNT, PATH, Google, Pool, answer, google
from tests.servers.issuer import SUBJECT, rsa_key


@pytest.fixture
async def cloud() -> AsyncIterator[Google]:
    async with google() as one:
        yield one


@pytest.mark.parametrize("variant", ["a  b", " a", "a\nb", 'a"b', "é", "x" * 257, " ".join("s" * 33)], ids=repr)
async def test_what_are_no_scopes_is_not_asked_for(cloud: Google, variant: str) -> None:
    assert isinstance(await failure(cloud, variant=variant), Rejected)
    assert cloud.gcp.requests == 0


Row = tuple[str, Callable[[Google], Any], type[RefreshError], str, str]
ROWS: list[Row] = [
    ("another audience", lambda g: g.token(aud="vault"), Rejected, "invalid_grant: The audience", "--allowed-audiences=vault"),
    ("another subject", lambda g: g.token(sub="other"), Rejected, "unauthorized_client", "attribute condition"),
    ("expired", lambda g: g.token(iat=1, exp=2), Rejected, "invalid_grant: ID Token issued at 1 is stale", "clock"),
    ("another key", lambda g: g.token(key=rsa_key("stranger")), Rejected, "invalid_grant: Unable to verify", "/jwks"),
    (
        "another issuer",
        lambda g: g.token(iss="https://issuer.example"),
        Rejected,
        "invalid_grant: The issuer",
        "--issuer-uri=https://issuer",
    ),
    (
        "a clock five minutes ahead",
        lambda g: g.token(now=datetime.now(UTC) + timedelta(minutes=5)),
        Rejected,
        "is in the future",
        "compare the clock",
    ),
    (
        "a clock five minutes behind",
        lambda g: g.token(iat=int(datetime.now(UTC).timestamp()) - 540, exp=int(datetime.now(UTC).timestamp()) - 60),
        Rejected,
        "is stale to sign-in",
        "compare the clock",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
async def test_a_token_that_google_does_not_trust_is_rejected_with_what_to_change(cloud: Google, row: Row) -> None:
    _, token, kind, code, remedy = row
    cloud.gcp.pools[f"//iam.googleapis.com/{PATH}"] = Pool(cloud.issuer.url, subject=SUBJECT)
    await cloud.provider().exchange(cloud.token())
    error = await failure(cloud, token(cloud))
    assert isinstance(error, kind)
    assert code in error.message
    assert remedy in error.remedy


async def test_who_may_not_act_as_the_service_account_is_told_the_binding(cloud: Google) -> None:
    error = await failure(cloud, cloud.token(sub="system:serviceaccount:demo:other"), serviceAccount=ACCOUNT)
    assert isinstance(error, Rejected)
    assert "403 PERMISSION_DENIED: Permission 'iam.serviceAccounts.getAccessToken' denied" in error.message
    pool = PATH.rpartition("/providers/")[0]
    member = f"principal://iam.googleapis.com/{pool}/subject/system:serviceaccount:demo:other"
    assert f"add-iam-policy-binding {ACCOUNT} --role=roles/iam.workloadIdentityUser --member={member}" in error.remedy
    other = "nobody@demo-project.iam.gserviceaccount.com"
    assert other in (await failure(cloud, variant="id:x", serviceAccount=other)).remedy


async def test_a_pool_that_is_not_there_is_rejected_by_its_name(cloud: Google) -> None:
    error = await failure(cloud, workloadIdentityProvider=PATH + "2")
    assert isinstance(error, Rejected)
    assert "invalid_target" in error.message
    assert PATH + "2" in error.remedy


async def test_an_issuer_that_google_cannot_reach_is_tried_again(cloud: Google) -> None:
    cloud.issuer.up = False
    error = await failure(cloud)
    assert isinstance(error, Unavailable)
    assert f"{cloud.issuer.url}/.well-known/openid-configuration" in error.remedy


async def test_a_generation_too_old_is_refused_and_the_next_one_is_not(cloud: Google) -> None:
    cloud.gcp.generations = 2
    now = int(datetime.now(UTC).timestamp())
    first, second, third = (cloud.token(iat=now - age) for age in (300, 200, 100))
    for token in (first, second, first, third, second):
        await cloud.provider().exchange(token)
    assert "stale" in (await failure(cloud, first)).message


def status(code: int, name: str, message: str = "in Google's words", reason: str = "") -> dict[str, Any]:
    return {"error": {"code": code, "status": name, "message": message, "details": [{"reason": reason}, "odd"]}}


REJECTED: list[tuple[int, Any, str, str]] = [
    (400, {"error": "invalid_scope", "error_description": "in Google's words"}, "invalid_scope", "provider.scopes"),
    (400, {"error": "invalid_grant"}, "invalid_grant", "names the issuer"),
    (400, {"error": "never_heard_of"}, "never_heard_of", "never_heard_of"),
    (403, status(403, "PERMISSION_DENIED", reason="SERVICE_DISABLED"), "PERMISSION_DENIED", "gcloud services enable"),
    (404, status(404, "NOT_FOUND"), "NOT_FOUND", "provider.serviceAccount"),
    (400, status(400, "INVALID_ARGUMENT"), "INVALID_ARGUMENT", "provider.lifetime"),
    (401, status(401, "UNAUTHENTICATED"), "UNAUTHENTICATED", "clock"),
    (403, "<html>Sign in", "without a code", "this was not Google"),
    (403, [], "without a code", "this was not Google"),
    (403, {"error": ["<b>"]}, "without a code", "this was not Google"),
    (403, {"error": {"status": "a b"}}, "without a code", "this was not Google"),
]


@pytest.mark.parametrize("row", REJECTED, ids=lambda row: f"{row[0]}-{row[2]}-{row[3]}")
@pytest.mark.parametrize("path", ["token", "generateAccessToken"])
async def test_a_refusal_that_a_person_has_to_mend_is_rejected(cloud: Google, row: tuple[int, Any, str, str], path: str) -> None:
    code, body, name, remedy = row
    cloud.gcp.instead = answer(code, body, path=path)
    error = await failure(cloud, serviceAccount=ACCOUNT)
    assert isinstance(error, Rejected)
    assert f"answered {code} {name}" in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (429, status(429, "RESOURCE_EXHAUSTED")),
        (503, status(503, "UNAVAILABLE")),
        (500, "<html>"),
        (502, ""),
        (400, {"error": "temporarily_unavailable"}),
        (408, ""),
    ],
    ids=str,
)
async def test_a_refusal_that_passes_by_itself_is_unavailable(cloud: Google, code: int, body: Any) -> None:
    for path, settings, requests in (("token", {}, 1), ("generateAccessToken", {"serviceAccount": ACCOUNT}, 3)):
        cloud.gcp.instead = answer(code, body, path=path, Retry_After="7")
        error = await failure(cloud, **settings)
        assert isinstance(error, Unavailable)
        assert error.retry_after == 7
        assert cloud.gcp.requests == requests


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_with_a_token(cloud: Google, code: int) -> None:
    async with google() as other:
        for path in ("token", "generateAccessToken"):
            cloud.gcp.instead = answer(code, "", path=path, Location=f"{other.gcp.url}/v1/token")
            error = await failure(cloud, serviceAccount=ACCOUNT)
            assert isinstance(error, Rejected)
            assert "redirects to 127.0.0.1, and a token is not sent after it" in error.message
        assert other.gcp.requests == 0


OAUTH = {"access_token": "ya29.x", "expires_in": 3600}
IAM = {"accessToken": "ya29.x", "expireTime": "2999-01-01T00:00:00Z"}
BAD_OAUTH: dict[str, Any] = {
    "a sign-in page": "<!doctype html><title>Sign in</title>",
    "nothing": "",
    "a list": [OAUTH],
    "no token": {"expires_in": 3600},
    "a token in two lines": {**OAUTH, "access_token": "one\ntwo"},
    "no expiry": {"access_token": "x"},
    "an expiry of null": {**OAUTH, "expires_in": None},
    "an expiry that is none": {**OAUTH, "expires_in": "soon"},
    "true": {**OAUTH, "expires_in": True},
    "not a number": '{"access_token": "x", "expires_in": NaN}',
    "infinity": '{"access_token": "x", "expires_in": Infinity}',
    "eleven years": {**OAUTH, "expires_in": 11 * 366 * 86400},
    "at once": {**OAUTH, "expires_in": 0},
    "in the past": {**OAUTH, "expires_in": -5},
    "deeper than anybody reads": "[" * 100_000,
}
BAD_IAM: dict[str, Any] = {
    "no expiry": {"accessToken": "x"},
    "an expiry that is none": {**IAM, "expireTime": "tomorrow"},
    "a day that is none": {**IAM, "expireTime": "2026-13-01T00:00:00Z"},
    "an expiry without a zone": {**IAM, "expireTime": "2999-01-01T00:00:00"},
    "absurd": IAM,
    "in the past": {**IAM, "expireTime": "2020-01-01T00:00:00Z"},
}


@pytest.mark.parametrize("body", BAD_OAUTH.values(), ids=BAD_OAUTH)
@pytest.mark.parametrize("account", [None, ACCOUNT])
async def test_an_incomplete_or_ended_or_garbled_grant_is_unavailable(cloud: Google, body: Any, account: str | None) -> None:
    cloud.gcp.instead = answer(200, body, path="token")
    assert isinstance(await failure(cloud, serviceAccount=account), Unavailable)
    assert cloud.gcp.requests == 1, "nothing is sent on with it"


@pytest.mark.parametrize("body", BAD_IAM.values(), ids=BAD_IAM)
async def test_the_same_of_a_service_account(cloud: Google, body: Any) -> None:
    cloud.gcp.instead = answer(200, body, path="generateAccessToken")
    assert isinstance(await failure(cloud, serviceAccount=ACCOUNT), Unavailable)


@pytest.mark.parametrize("token", ["", "x", 5, None, "a.b.c"], ids=repr)
async def test_an_id_token_that_is_none_is_unavailable(cloud: Google, token: Any) -> None:
    cloud.gcp.instead = answer(200, {"token": token}, path="generateIdToken")
    assert isinstance(await failure(cloud, variant="id:x", serviceAccount=ACCOUNT), Unavailable)


async def test_expiries_are_read_as_numbers_text_and_with_fractions(cloud: Google) -> None:
    cloud.gcp.instead = answer(200, {**OAUTH, "expires_in": "1800"}, path="token")
    credential = await cloud.provider().exchange(cloud.token())
    assert credential.expires_at == (credential.issued_at or datetime.now(UTC)) + timedelta(minutes=30)
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    cloud.gcp.instead = answer(200, {**IAM, "expireTime": f"{soon:%Y-%m-%dT%H:%M:%S}.25Z"}, path="generateAccessToken")
    assert (await cloud.provider(serviceAccount=ACCOUNT).exchange(cloud.token())).expires_at == soon


async def test_words_of_google_that_quote_a_secret_are_not_repeated(cloud: Google) -> None:
    token = cloud.token()
    quoted = token.value.reveal()[30:60]
    cloud.gcp.instead = answer(400, {"error": "invalid_grant", "error_description": f"Bad token {quoted}"})
    assert (await failure(cloud, token)).message.endswith("answered 400 invalid_grant")
    cloud.gcp.instead = answer(400, {"error": token.value.reveal().split(".")[1][:60]})
    assert (await failure(cloud, token)).message.endswith("answered 400 without a code")


async def test_an_answer_that_repeats_the_token_is_not_repeated(cloud: Google, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = cloud.token()
    for code in (200, 400, 500):
        for path in ("token", "generateAccessToken"):
            cloud.gcp.instead = answer(code, token.value.reveal(), path=path)
            await failure(cloud, token, serviceAccount=ACCOUNT)
    cloud.gcp.instead = None
    await cloud.provider(serviceAccount=ACCOUNT).exchange(token)
    assert not any(secret in caplog.text for secret in (token.value.reveal(), *cloud.gcp.sessions))


async def test_a_silent_google_is_unavailable_after_the_patience() -> None:
    async with google(patience=0.2) as cloud:
        cloud.gcp.hanging = True
        error = await failure(cloud)
        assert isinstance(error, Unavailable)
        assert "did not answer within 0.2 s" in error.message
        cloud.gcp.hanging = False
        await cloud.provider().exchange(cloud.token())
