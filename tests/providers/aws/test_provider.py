"""The exchange, every way it can be refused, and what an AWS identity's files say."""

import asyncio
from collections.abc import AsyncIterator, Callable
from configparser import ConfigParser
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import PurePosixPath
from typing import Any

import botocore.session
import pytest
from aiohttp import web

from agent.errors import RefreshError, Rejected, Unavailable
from agent.model import Credential, Delivery, Paths, PriorDelivery, Secret
from tests.servers.cloud import ROLE, Cloud, aws_settings, cloud
from tests.servers.issuer import SUBJECT, rsa_key
from tests.servers.sts import Trust, page, refuse

PATHS = Paths(directory=PurePosixPath("/var/run/identities/s3-reader"))
SECOND = "arn:aws:iam::210987654321:role/team/writer"
THIRD = "arn:aws:iam::333333333333:role/deep"


@pytest.fixture
async def aws() -> AsyncIterator[Cloud]:
    async with cloud() as one:
        yield one


def delivered(credential: Credential) -> PriorDelivery:
    """As a sink hands it back after a restart."""
    issued_at, expires_at = credential.issued_at, credential.expires_at
    times = {"credential_issued_at": issued_at, "credential_expires_at": expires_at}
    delivery = Delivery(generation=0, token_issued_at=None, token_expires_at=None, **times)
    return PriorDelivery(token=None, files=credential.files(PATHS), delivery=delivery)


async def failure(one: Cloud, token: Any = None, **settings: Any) -> RefreshError:
    """What the exchange raises; nothing of the token is in it or behind it."""
    token = token or one.issuer.token()
    with pytest.raises(RefreshError) as caught:
        await one.provider(**settings).exchange(token)
    error: BaseException | None = caught.value
    assert caught.value.message.startswith("s3-reader: ")
    while error is not None:
        for text in (str(error), repr(error), repr(error.args)):
            assert not any(part in text for part in token.value.reveal().split("."))
        error = error.__cause__ or error.__context__
    return caught.value


async def test_a_token_becomes_a_session_of_the_role(aws: Cloud) -> None:
    before = datetime.now(UTC)
    provider = aws.provider()
    credential = await provider.exchange(aws.issuer.token())
    document = credential.document()
    session = aws.sts.sessions[document["AccessKeyId"]]
    assert (document["SecretAccessKey"], document["Token"]) == (Secret(session.secret), Secret(session.token))
    assert (document["AccountId"], document["RoleArn"]) == ("123456789012", ROLE)
    assert document["Expiration"] == credential.expires_at == session.expires_at.replace(microsecond=0)
    assert credential.issued_at is not None
    assert before <= credential.issued_at <= datetime.now(UTC)
    assert "DurationSeconds" not in aws.sts.parameters
    assert session.arn.endswith(f"/{aws.sts.parameters['RoleSessionName']}")
    assert provider.host == f"127.0.0.1:{aws.sts.port}"
    assert session.secret not in repr(credential)
    assert session.token not in repr(document)


async def test_duration_and_policies_go_with_the_request(aws: Cloud) -> None:
    policy, arns = '{"Version": "2012-10-17"}', ["arn:aws:iam::aws:policy/ReadOnlyAccess", "arn:aws:iam::123456789012:policy/a/b"]
    credential = await aws.provider(duration="2h", policy=policy, policyArns=arns, sessionName="demo").exchange(aws.issuer.token())
    sent = aws.sts.parameters
    assert (sent["DurationSeconds"], sent["Policy"], sent["RoleSessionName"]) == ("7200", policy, "demo")
    assert [sent["PolicyArns.member.1.arn"], sent["PolicyArns.member.2.arn"]] == arns
    assert credential.expires_at is not None
    assert credential.expires_at > datetime.now(UTC) + timedelta(minutes=119)


async def test_a_grant_of_thirty_seconds_is_taken_as_it_is(aws: Cloud) -> None:
    aws.sts.lifetime = 30
    credential = await aws.provider().exchange(aws.issuer.token())
    assert credential.expires_at is not None
    assert timedelta(seconds=25) < credential.expires_at - datetime.now(UTC) <= timedelta(seconds=30)


async def test_a_chain_is_walked_with_the_keys_of_the_step_before(aws: Cloud) -> None:
    aws.sts.trust[SECOND] = Trust(caller=ROLE, external_id="tenant-7")
    aws.sts.trust[THIRD] = Trust(caller=SECOND)
    steps = [
        {"roleArn": SECOND, "externalId": "tenant-7", "sessionTags": {"team": "a"}, "transitiveTags": ["team"]},
        {"roleArn": THIRD},
    ]
    provider = aws.provider(chain=steps, sessionTags={"job": "b"}, duration="30m", policy="{}")
    credential = await provider.exchange(aws.issuer.token())
    assert [session.role for session in aws.sts.sessions.values()] == [ROLE, SECOND, THIRD]
    assert aws.sts.sessions[credential.document()["AccessKeyId"]].role == THIRD
    assert (credential.document()["RoleArn"], credential.document()["AccountId"]) == (THIRD, "333333333333")
    lifetimes = [round((session.expires_at - datetime.now(UTC)).total_seconds() / 60) for session in aws.sts.sessions.values()]
    assert lifetimes == [15, 15, 30]
    sent = aws.sts.parameters
    assert (sent["Tags.member.1.Key"], sent["Tags.member.1.Value"], sent["Policy"]) == ("job", "b", "{}")
    assert "Tags.member.2.Key" not in sent
    assert "ExternalId" not in sent


async def test_a_chain_that_is_refused_names_both_roles_and_what_to_allow(aws: Cloud) -> None:
    aws.sts.trust[SECOND] = Trust(caller=ROLE, external_id="tenant-7")
    error = await failure(aws, chain=[{"roleArn": SECOND, "externalId": "tenant-8"}])
    assert isinstance(error, Rejected)
    assert "AccessDenied" in error.message
    assert all(part in error.remedy for part in (ROLE, SECOND, "sts:AssumeRole", "external ID"))
    secrets = [text for session in aws.sts.sessions.values() for text in (session.secret, session.token)]
    assert not any(secret in str(error) for secret in secrets)


Row = tuple[str, Callable[[Cloud], Any], str, str]
ROWS: list[Row] = [
    ("expired", lambda c: c.issuer.token(iat=1, exp=2), "ExpiredToken", "clock"),
    ("another audience", lambda c: c.issuer.token(aud="vault"), "InvalidIdentityToken", "with the audience vault"),
    (
        "another subject",
        lambda c: c.issuer.token(sub="system:serviceaccount:demo:other"),
        "AccessDenied",
        ":sub = system:serviceaccount:demo:other",
    ),
    ("another key", lambda c: c.issuer.token(key=rsa_key("stranger")), "InvalidIdentityToken", "publish a key before it signs"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
async def test_a_token_that_sts_does_not_trust_is_rejected_with_what_to_change(aws: Cloud, row: Row) -> None:
    _, token, code, remedy = row
    error = await failure(aws, token(aws))
    assert isinstance(error, Rejected)
    assert code in error.message
    assert remedy in error.remedy


async def test_an_unknown_role_is_rejected_with_the_trust_policy_it_needs(aws: Cloud) -> None:
    error = await failure(aws, roleArn=THIRD)
    assert isinstance(error, Rejected)
    issuer = aws.issuer.url.removeprefix("http://")
    assert all(part in error.remedy for part in (THIRD, f"{issuer}:aud = sts.amazonaws.com", f"{issuer}:sub = {SUBJECT}"))


async def test_an_issuer_that_aws_cannot_reach_is_tried_again(aws: Cloud) -> None:
    aws.issuer.up = False
    error = await failure(aws)
    assert isinstance(error, Unavailable)
    assert f"{aws.issuer.url}/.well-known/openid-configuration" in error.remedy


async def test_a_generation_too_old_is_refused_and_the_next_one_is_not(aws: Cloud) -> None:
    aws.sts.generations = 2
    now = int(datetime.now(UTC).timestamp())
    first, second, third = (aws.issuer.token(iat=now - age) for age in (300, 200, 100))
    provider = aws.provider()
    for token in (first, second, first, third, second):
        await provider.exchange(token)
    assert "ExpiredToken" in (await failure(aws, first)).message


REJECTED = [
    (403, "IDPRejectedClaim", "claims"),
    (400, "MalformedPolicyDocument", "provider.policy"),
    (400, "PackedPolicyTooLarge", "provider.policyArns"),
    (403, "RegionDisabledException", "eu-west-1"),
    (400, "ValidationError", "duration"),
    (400, "NeverHeardOf", "NeverHeardOf"),
    (403, "<b>", "this was not STS"),
]


@pytest.mark.parametrize(("status", "code", "remedy"), REJECTED)
async def test_a_refusal_that_a_person_has_to_mend_is_rejected(aws: Cloud, status: int, code: str, remedy: str) -> None:
    aws.sts.instead = refuse(status, code, "in AWS's words")
    error = await failure(aws)
    assert isinstance(error, Rejected)
    assert f"answered {status} {code if code.isalpha() else 'without a code'}: in AWS's words" in error.message
    assert remedy in error.remedy


UNAVAILABLE = [
    (400, "Throttling"),
    (400, "ThrottlingException"),
    (429, "TooManyRequestsException"),
    (503, "RequestLimitExceeded"),
    (400, "IDPCommunicationError"),
    (500, "InternalFailure"),
    (503, "ServiceUnavailable"),
    (502, "SomethingElse"),
    (408, "RequestTimeout"),
]


@pytest.mark.parametrize(("status", "code"), UNAVAILABLE)
async def test_a_refusal_that_passes_by_itself_is_unavailable(aws: Cloud, status: int, code: str) -> None:
    aws.sts.instead = refuse(status, code)
    error = await failure(aws)
    assert isinstance(error, Unavailable)
    assert code in error.message
    assert error.retry_after is None
    assert aws.sts.requests == 1


@pytest.mark.parametrize("answer", [refuse, lambda status, _, **headers: page(status, "<html>busy", **headers)])
async def test_retry_after_is_passed_on_as_seconds_and_as_a_date(aws: Cloud, answer: Callable[..., Any]) -> None:
    aws.sts.instead = answer(429, "Throttling", Retry_After="7")
    error = await failure(aws)
    assert isinstance(error, Unavailable)
    assert error.retry_after == 7
    aws.sts.instead = answer(503, "Throttling", Retry_After=format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True))
    error = await failure(aws)
    assert isinstance(error, Unavailable)
    assert error.retry_after is not None
    assert 35 < error.retry_after <= 40


@pytest.mark.parametrize("header", ["soon", "-3", "nan", "inf", ""])
async def test_a_senseless_retry_after_is_none(aws: Cloud, header: str) -> None:
    aws.sts.instead = refuse(429, "Throttling", Retry_After=header)
    error = await failure(aws)
    assert isinstance(error, Unavailable)
    assert not error.retry_after


NOT_STS = {
    "a sign-in page": "<!doctype html><title>Sign in</title><p>Wi-Fi &nbsp;",
    "XHTML": "<html><body><p>hello</p></body></html>",
    "nothing": "",
    "half an answer": "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>",
    "text in the wrong place": "<R><AssumeRoleWithWebIdentityResult>hello</AssumeRoleWithWebIdentityResult></R>",
    "a time that is none": "<R><AssumeRoleWithWebIdentityResult><Credentials><Expiration>soon</Expiration></Credentials>"
    "</AssumeRoleWithWebIdentityResult></R>",
    "twice": "<R>" + 2 * "<AssumeRoleWithWebIdentityResult><Credentials/></AssumeRoleWithWebIdentityResult>" + "</R>",
    "two credentials": "<R><AssumeRoleWithWebIdentityResult><Credentials/><Credentials/></AssumeRoleWithWebIdentityResult></R>",
}


@pytest.mark.parametrize("text", NOT_STS.values(), ids=NOT_STS)
async def test_an_answer_that_is_not_of_sts_is_unavailable(aws: Cloud, text: str) -> None:
    aws.sts.instead = page(200, text)
    assert isinstance(await failure(aws), Unavailable)


async def test_an_answer_without_end_is_not_read_to_its_end(aws: Cloud) -> None:
    aws.sts.instead = page(200, "x" * 300_000)
    assert "more than 256 KiB" in (await failure(aws)).message


def grant(**credentials: str) -> Callable[[Any], Any]:
    whole = {
        "AccessKeyId": "ASIAX",
        "SecretAccessKey": "s" * 40,
        "SessionToken": "t" * 90,
        "Expiration": f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
        **credentials,
    }
    inner = "".join(f"<{name}>{text}</{name}>" for name, text in whole.items() if text)
    return page(200, f"<R><AssumeRoleWithWebIdentityResult><Credentials>{inner}</Credentials></AssumeRoleWithWebIdentityResult></R>")


@pytest.mark.parametrize(
    "credentials",
    [
        {"Expiration": ""},
        {"Expiration": "2020-01-01T00:00:00Z"},
        {"Expiration": "2999-01-01T00:00:00Z"},
        {"SecretAccessKey": ""},
        {"SessionToken": "one\n[other]\nrole_arn = x"},
        {"AccessKeyId": "ASIA X"},
    ],
    ids=str,
)
async def test_an_incomplete_or_ended_or_garbled_grant_is_unavailable(aws: Cloud, credentials: dict[str, str]) -> None:
    aws.sts.instead = grant()
    await aws.provider().exchange(aws.issuer.token())
    aws.sts.instead = grant(**credentials)
    error = await failure(aws)
    assert isinstance(error, Unavailable)
    assert "granted" in error.message


async def test_words_of_aws_that_quote_the_token_are_not_repeated(aws: Cloud) -> None:
    token = aws.issuer.token()
    aws.sts.instead = refuse(400, "ValidationError", f"Value '{token.value.reveal()[30:60]}' at 'webIdentityToken' failed")
    error = await failure(aws, token)
    assert error.message.endswith("answered 400 ValidationError")
    aws.sts.instead = refuse(400, token.value.reveal().split(".")[1], "")
    assert (await failure(aws, token)).message.endswith("answered 400 without a code")


async def test_an_answer_that_repeats_the_token_is_not_repeated(aws: Cloud) -> None:
    token = aws.issuer.token()
    for status in (200, 400, 500):
        aws.sts.instead = page(status, token.value.reveal())
        await failure(aws, token)


async def test_a_silent_sts_is_unavailable_after_the_patience() -> None:
    async with cloud(patience=1.5) as aws:  # enough for the good exchange on a busy machine
        aws.sts.hanging = True
        error = await failure(aws)
        assert isinstance(error, Unavailable)
        assert "did not answer within 1.5 s" in error.message
        aws.sts.hanging = False
        await aws.provider().exchange(aws.issuer.token())


async def test_a_cancelled_exchange_is_cancelled_and_the_next_one_works(aws: Cloud) -> None:
    aws.sts.hanging = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await aws.provider().exchange(aws.issuer.token())
    aws.sts.hanging = False
    await aws.provider().exchange(aws.issuer.token())


async def test_without_a_token_there_is_nothing_to_exchange(aws: Cloud) -> None:
    with pytest.raises(Rejected, match="without a token"):
        await aws.provider().exchange(None)
    assert aws.sts.requests == 0


async def test_exchange_false_leaves_all_of_it_to_the_sdk(aws: Cloud) -> None:
    provider = aws.provider(exchange=False)
    credential = await provider.exchange(aws.issuer.token())
    assert (provider.host, credential.issued_at, credential.expires_at, dict(credential.document())) == ("", None, None, {})
    assert set(credential.files(PATHS)) == {"credentialsFile", "config"}
    restored = provider.restore(delivered(credential))
    assert restored is not None
    assert restored.files(PATHS) == credential.files(PATHS)
    assert aws.sts.requests == 0


async def test_the_credentials_file_is_what_botocore_reads(aws: Cloud, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    credential = await aws.provider().exchange(aws.issuer.token())
    files = credential.files(PATHS)
    assert set(files) == {"credentialsFile", "credentials", "config"}
    (tmp_path / "credentials").write_text(files["credentials"].reveal())
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    session = botocore.session.Session()
    found = session.get_credentials()
    assert found is not None
    document = credential.document()
    assert (found.access_key, Secret(found.secret_key), Secret(found.token)) == (
        document["AccessKeyId"],
        document["SecretAccessKey"],
        document["Token"],
    )
    assert session.get_scoped_config()["region"] == "eu-west-1"


async def test_a_restart_finds_the_session_in_its_files_without_asking(aws: Cloud) -> None:
    provider = aws.provider()
    credential = await provider.exchange(aws.issuer.token())
    restored = provider.restore(delivered(credential))
    assert restored is not None
    assert restored.document() == credential.document()
    assert (restored.issued_at, restored.expires_at) == (credential.issued_at, credential.expires_at)
    assert restored.files(PATHS) == credential.files(PATHS)
    assert aws.sts.requests == 1


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "garbage",
        "[default]\naws_access_key_id = x\n",
        "[other]\na = b\n",
        "[default]\naws_access_key_id\n",
        "a = b",
        "[default]\na=1\na=2",
    ],
)
async def test_files_that_hold_no_session_restore_nothing(aws: Cloud, text: str | None) -> None:
    provider = aws.provider()
    prior = delivered(await provider.exchange(aws.issuer.token()))
    files = {name: secret for name, secret in prior.files.items() if name != "credentials"}
    if text is not None:
        files["credentials"] = Secret(text)
    assert provider.restore(PriorDelivery(token=None, files=files, delivery=prior.delivery)) is None


def test_a_narrowed_session_leaves_no_file_that_gives_the_wide_one() -> None:
    paths = Paths(directory=PurePosixPath("/x"))
    for settings in ({"policy": "{}"}, {"chain": [{"roleArn": SECOND}]}, {"policyArns": ["arn:aws:iam::aws:policy/ReadOnlyAccess"]}):
        found = aws_settings(**settings).environment("s3-reader", paths).values
        assert found["AWS_SHARED_CREDENTIALS_FILE"] == "/x/credentials"
        assert not any("WEB_IDENTITY" in name for name in found)
    assert aws_settings().environment("s3-reader", paths).values["AWS_WEB_IDENTITY_TOKEN_FILE"] == "/x/token"


async def test_the_narrowed_sessions_files_say_no_token_file(aws: Cloud) -> None:
    credential = await aws.provider(policy="{}").exchange(aws.issuer.token())
    assert set(credential.files(PATHS)) == {"credentials", "config"}


async def test_the_token_file_form_is_an_ini_of_both_kinds(aws: Cloud) -> None:
    ini = ConfigParser()
    ini.read_string((await aws.provider().exchange(aws.issuer.token())).files(PATHS)["credentialsFile"].reveal())
    assert ini["default"]["web_identity_token_file"] == f"{PATHS.directory}/token"
    assert ini["default"]["role_arn"] == ROLE


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"duration": "15m"}, []),
    ({"duration": "12h"}, []),
    ({"duration": "14m"}, ["duration"]),
    ({"duration": "13h"}, ["duration"]),
    ({"duration": "2h", "chain": [{"roleArn": SECOND}]}, ["duration"]),
    ({"duration": "1h", "chain": [{"roleArn": SECOND}], "sessionTags": {"a": "b"}}, []),
    ({"sessionTags": {"a": "b"}}, ["sessionTags"]),
    ({"chain": [{"roleArn": SECOND, "sessionTags": {"a": "b"}, "transitiveTags": ["a", "c"]}]}, ["chain[0].transitiveTags"]),
    ({"policy": "Allow"}, ["policy"]),
    ({"policy": "[]"}, ["policy"]),
    ({"exchange": False, "policy": "{}"}, ["exchange"]),
    ({"exchange": False, "duration": "1h"}, ["exchange"]),
    ({"region": "cn-north-1"}, ["region"]),
    ({"endpoint": "https://sts.example"}, []),
    ({"endpoint": "https://u:p@sts.example"}, ["endpoint"]),
    ({"endpoint": "http://sts.example"}, ["endpoint"]),
    ({"endpoint": "http://127.0.0.1.example"}, ["endpoint"]),
    ({"endpoint": "http://[::1]:80"}, []),
    ({"endpoint": "http://localhost:80", "proxy": "http://proxy:3128"}, ["proxy"]),
    ({"proxy": "http://u:p@proxy:3128"}, []),
]


@pytest.mark.parametrize(("settings", "fields"), FAULTS, ids=str)
def test_settings_that_cannot_work_together_are_named(settings: dict[str, Any], fields: list[str]) -> None:
    assert [field for field, _ in aws_settings(**settings).faults()] == fields


def test_the_host_is_that_of_the_region_unless_configured() -> None:
    assert aws_settings().sts.host == "sts.eu-west-1.amazonaws.com"
    assert aws_settings(region="cn-north-1").sts.host == "sts.cn-north-1.amazonaws.com.cn"
    assert aws_settings(endpoint="https://vpce-1.sts.eu-west-1.vpce.amazonaws.com").sts.host == "vpce-1.sts.eu-west-1.vpce.amazonaws.com"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_an_answer_that_declares_entities_is_not_parsed(aws: Cloud, encoding: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?><!-- <ErrorResponse -->'
    declared = f'{head}<!DOCTYPE r [<!ENTITY a "{"word " * 500}">]><ErrorResponse><Error><Code>Throttling</Code>'
    body = f"{declared}<Message>{'&a;' * 97}</Message></Error></ErrorResponse>".encode(encoding)
    for status, kind in ((400, Rejected), (200, Unavailable), (503, Unavailable)):
        aws.sts.instead = lambda _, status=status: web.Response(status=status, body=body, content_type="text/xml")
        error = await failure(aws)
        assert type(error) is kind
        assert "word" not in error.message
