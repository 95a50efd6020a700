"""The exchange, every way it can be refused, and what an Alibaba identity's files and variables say."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from configparser import ConfigParser
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

from agent.errors import RefreshError, Rejected, Unavailable
from agent.model import Credential, Delivery, Paths, PriorDelivery, Secret
from agent.providers.alibaba.trust import Trust as RoleTrust
from tests.fakes import FakeClock
from tests.servers.alibaba import HOST, page, refuse, refuse_in_xml
from tests.servers.alibaba_cloud import PROVIDER, ROLE, AlibabaCloud, alibaba_cloud, alibaba_settings
from tests.servers.issuer import SUBJECT, rsa_key

PATHS = Paths(directory=PurePosixPath("/var/run/identities/oss-reader"))
OTHER = "acs:ram::1234567890123456:role/other"


@pytest.fixture
async def alibaba() -> AsyncIterator[AlibabaCloud]:
    async with alibaba_cloud() as one:
        yield one


def delivered(credential: Credential) -> PriorDelivery:
    """As a sink hands it back after a restart."""
    times = {"credential_issued_at": credential.issued_at, "credential_expires_at": credential.expires_at}
    delivery = Delivery(generation=0, token_issued_at=None, token_expires_at=None, **times)
    return PriorDelivery(token=None, files=credential.files(PATHS), delivery=delivery)


async def failure(one: AlibabaCloud, token: Any = None, **settings: Any) -> RefreshError:
    """What the exchange raises; nothing of the token is in it or behind it."""
    token = token or one.token()
    with pytest.raises(RefreshError) as caught:
        await one.provider(**settings).exchange(token)
    error: BaseException | None = caught.value
    assert caught.value.message.startswith("oss-reader: ")
    while error is not None:
        for text in (str(error), repr(error), repr(error.args)):
            assert not any(part in text for part in token.value.reveal().split("."))
        error = error.__cause__ or error.__context__
    return caught.value


async def test_a_token_becomes_a_session_of_the_role(alibaba: AlibabaCloud) -> None:
    before = datetime.now(UTC)
    provider = alibaba.provider()
    credential = await provider.exchange(alibaba.token())
    document = credential.document()
    session = alibaba.sts.sessions[document["AccessKeyId"]]
    assert (document["AccessKeySecret"], document["SecurityToken"]) == (Secret(session.secret), Secret(session.token))
    assert document["Expiration"] == credential.expires_at == session.expires_at.replace(microsecond=0)
    assert credential.issued_at is not None
    assert before <= credential.issued_at <= datetime.now(UTC)
    assert (session.role, session.name, session.subject) == (ROLE, alibaba_settings().session("oss-reader"), SUBJECT)
    assert provider.host == f"127.0.0.1:{alibaba.sts.port}"
    assert (session.secret in repr(credential), session.token in repr(document)) == (False, False)


async def test_the_token_is_in_the_body_and_the_query_says_nothing_of_the_identity(alibaba: AlibabaCloud) -> None:
    await alibaba.provider(duration="30m", sessionName="demo").exchange(alibaba.token())
    assert alibaba.sts.method == "POST"
    assert set(alibaba.sts.query) == {"Action", "Version", "Format", "Timestamp"}
    sent = {"RoleArn": ROLE, "OIDCProviderArn": PROVIDER, "RoleSessionName": "demo", "DurationSeconds": "1800"}
    assert alibaba.sts.form == sent


async def test_the_timestamp_is_in_utc_and_by_the_agents_clock() -> None:
    clock = FakeClock(datetime(2026, 7, 1, 10, 0, 0, 999, tzinfo=UTC))
    async with alibaba_cloud(clock=clock, now=clock.now) as one:
        await one.provider().exchange(one.token(iat=int(clock.now().timestamp()), exp=int(clock.now().timestamp()) + 60))
        assert one.sts.query["Timestamp"] == "2026-07-01T10:00:00Z"


async def test_a_grant_of_thirty_seconds_is_taken_as_it_is(alibaba: AlibabaCloud) -> None:
    alibaba.sts.lifetime = 30
    credential = await alibaba.provider().exchange(alibaba.token())
    assert credential.expires_at is not None
    assert timedelta(seconds=25) < credential.expires_at - datetime.now(UTC) <= timedelta(seconds=30)


Row = tuple[str, Callable[[AlibabaCloud], Any], str, str]
ROWS: list[Row] = [
    ("expired", lambda c: c.token(iat=1, exp=2), "AuthenticationFail.OIDCToken.Expired", "clock"),
    ("another audience", lambda c: c.token(aud="vault"), "AuthenticationFail.OIDCToken.AudienceNotMatch", "add vault to the client IDs"),
    ("another subject", lambda c: c.token(sub="demo:other"), "AuthenticationFail.NoPermission", "oidc:sub = demo:other"),
    ("another key", lambda c: c.token(key=rsa_key("stranger")), "AuthenticationFail.OIDCToken.Invalid", "the key that signed the token"),
    ("another issuer", lambda c: c.token(iss="https://x.example"), "AuthenticationFail.OIDCToken.IssuerNotMatch", "https://x.example"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
async def test_a_token_that_sts_does_not_trust_is_rejected_with_what_to_change(alibaba: AlibabaCloud, row: Row) -> None:
    _, token, code, remedy = row
    error = await failure(alibaba, token(alibaba))
    assert isinstance(error, Rejected)
    assert f" {code}: " in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(("minutes", "code"), [(5, "AuthenticationFail.OIDCToken.Invalid"), (-5, "AuthenticationFail.OIDCToken.Expired")])
async def test_an_issuers_clock_five_minutes_off_is_rejected_with_the_clocks_to_compare(
    alibaba: AlibabaCloud, minutes: int, code: str
) -> None:
    now = datetime.now(UTC) + timedelta(minutes=minutes)
    error = await failure(alibaba, alibaba.token(now=now, exp=int(now.timestamp()) + 240))
    assert isinstance(error, Rejected)
    assert code in error.message
    assert "compare the clock" in error.remedy


@pytest.mark.parametrize("minutes", [5, -5])
async def test_an_agents_clock_five_minutes_off_spoils_no_exchange(minutes: int) -> None:
    clock = FakeClock(datetime.now(UTC) + timedelta(minutes=minutes))
    async with alibaba_cloud(clock=clock) as one:
        credential = await one.provider().exchange(one.token())
        assert credential.expires_at is not None
        assert abs((credential.expires_at - datetime.now(UTC)).total_seconds() - 3600) < 5


async def test_an_unknown_role_and_an_unknown_provider_are_rejected_by_name(alibaba: AlibabaCloud) -> None:
    error = await failure(alibaba, roleArn=OTHER)
    assert isinstance(error, Rejected)
    assert "404 EntityNotExist.Role" in error.message
    assert f"create {OTHER}" in error.remedy
    error = await failure(alibaba, oidcProviderArn="acs:ram::1234567890123456:oidc-provider/other")
    assert isinstance(error, Rejected)
    assert "No such OIDC Provider registered" in error.message
    assert "oidc-provider/other" in error.remedy


async def test_an_issuer_that_alibaba_cannot_reach_is_tried_again(alibaba: AlibabaCloud) -> None:
    alibaba.issuer.up = False
    error = await failure(alibaba)
    assert isinstance(error, Unavailable)
    assert f"{alibaba.issuer.url}/.well-known/openid-configuration" in error.remedy


async def test_a_duration_that_the_role_does_not_allow_is_rejected(alibaba: AlibabaCloud) -> None:
    error = await failure(alibaba, duration="2h")
    assert isinstance(error, Rejected)
    assert "provider.duration" in error.remedy


async def test_a_generation_too_old_is_refused_and_the_next_one_is_not(alibaba: AlibabaCloud) -> None:
    alibaba.sts.generations = 2
    now = int(datetime.now(UTC).timestamp())
    first, second, third = (alibaba.token(iat=now - age) for age in (300, 200, 100))
    provider = alibaba.provider()
    for token in (first, second, first, third, second):
        await provider.exchange(token)
    assert "Expired" in (await failure(alibaba, first)).message


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (403, "NoPermission", ROLE),
        (400, "AuthenticationFail.OIDCToken.PublicKeyFingerprintMismatch", "fingerprints"),
        (400, "AuthenticationFail.OIDCToken.Anything", "openid-configuration"),
        (404, "EntityNotExist.OIDCProvider", PROVIDER),
        (400, "InvalidParameter.RoleSessionName", "sessionName"),
        (400, "InvalidTimeStamp.Expired", "clock"),
        (404, "InvalidAction.NotFound", "provider.endpoint"),
        (400, "NeverHeardOf", "look up NeverHeardOf"),
        (403, "<b>", "this was not STS"),
        (403, "", "this was not STS"),
        (200, "NeverHeardOf", "look up NeverHeardOf"),
    ],
)
async def test_a_refusal_that_a_person_has_to_mend_is_rejected(alibaba: AlibabaCloud, status: int, code: str, remedy: str) -> None:
    alibaba.sts.instead = refuse(status, code, "in Alibaba's words")
    error = await failure(alibaba)
    assert isinstance(error, Rejected)
    assert f"answered {status} {code if code and code[0].isalpha() else 'without a code'}: in Alibaba's words" in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "Throttling"),
        (400, "Throttling.User"),
        (429, "TooManyRequests"),
        (503, "ServiceUnavailable"),
        (500, "InternalError"),
        (400, "InternalError"),
        (502, "SomethingElse"),
        (408, "Slow"),
    ],
)
async def test_a_refusal_that_passes_by_itself_is_unavailable(alibaba: AlibabaCloud, status: int, code: str) -> None:
    alibaba.sts.instead = refuse(status, code, Retry_After="7")
    error = await failure(alibaba)
    assert isinstance(error, Unavailable)
    assert code in error.message
    assert error.retry_after == 7
    assert alibaba.sts.requests == 1


async def test_a_refusal_in_xml_is_read_as_well(alibaba: AlibabaCloud) -> None:
    alibaba.sts.instead = refuse_in_xml(400, "Throttling.User", "Request was denied due to user flow control.")
    assert "Throttling.User: Request was denied" in (await failure(alibaba)).message
    alibaba.sts.instead = refuse_in_xml(403, "NoPermission")
    assert isinstance(await failure(alibaba), Rejected)


NOT_STS = {
    "a sign-in page": "<!doctype html><title>Sign in</title><Code>Throttling</Code>",
    "nothing": "",
    "a list": "[]",
    "nested beyond reason": "[" * 100_000,
    "no credentials": "{}",
    "credentials that are none": '{"Credentials": "hello"}',
    "binary": "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
}


@pytest.mark.parametrize("text", NOT_STS.values(), ids=NOT_STS)
async def test_an_answer_that_is_not_of_sts_is_unavailable(alibaba: AlibabaCloud, text: str) -> None:
    alibaba.sts.instead = page(200, text)
    error = await failure(alibaba)
    assert isinstance(error, Unavailable)
    assert "an incomplete session" in error.message


GRANT = {"AccessKeyId": "STS.x", "AccessKeySecret": "s" * 40, "SecurityToken": "t" * 90}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"Expiration": None}, "an incomplete session"),
        ({"Expiration": 4102444800}, "an incomplete session"),
        ({"Expiration": "soon"}, "an incomplete session"),
        ({"Expiration": "2030-01-01T00:00:00"}, "an incomplete session"),
        ({"Expiration": "9999-12-31T23:59:59-14:00"}, "an incomplete session"),
        ({"Expiration": "2020-01-01T00:00:00Z"}, "has ended already"),
        ({"Expiration": "2999-01-01T00:00:00Z"}, "a session that never ends"),
        ({"AccessKeySecret": ""}, "an incomplete session"),
        ({"SecurityToken": "one\n[other]"}, "an incomplete session"),
        ({"AccessKeyId": ["STS.x"]}, "an incomplete session"),
    ],
    ids=str,
)
async def test_an_incomplete_or_ended_or_endless_grant_is_unavailable(alibaba: AlibabaCloud, given: dict[str, Any], what: str) -> None:
    soon = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    alibaba.sts.instead = page(200, json.dumps({"Credentials": {**GRANT, "Expiration": soon}}))
    await alibaba.provider().exchange(alibaba.token())
    alibaba.sts.instead = page(200, json.dumps({"Credentials": {**GRANT, "Expiration": soon, **given}}))
    error = await failure(alibaba)
    assert isinstance(error, Unavailable)
    assert what in error.message


async def test_words_of_alibaba_that_quote_the_token_are_not_repeated(alibaba: AlibabaCloud) -> None:
    token = alibaba.token()
    alibaba.sts.instead = refuse(400, "InvalidParameter", f"The value {token.value.reveal()[30:60]} is wrong")
    assert (await failure(alibaba, token)).message.endswith("answered 400 InvalidParameter")
    alibaba.sts.instead = refuse(400, token.value.reveal().split(".")[1][:70], "")
    assert (await failure(alibaba, token)).message.endswith("answered 400 without a code")
    for status in (200, 400, 500):
        alibaba.sts.instead = page(status, token.value.reveal())
        await failure(alibaba, token)


async def test_without_a_token_there_is_nothing_to_exchange(alibaba: AlibabaCloud) -> None:
    with pytest.raises(Rejected, match="without a token"):
        await alibaba.provider().exchange(None)
    assert alibaba.sts.requests == 0


async def test_exchange_false_leaves_all_of_it_to_the_sdk(alibaba: AlibabaCloud) -> None:
    provider = alibaba.provider(exchange=False)
    credential = await provider.exchange(alibaba.token())
    assert (provider.host, credential.issued_at, credential.expires_at, dict(credential.document())) == ("", None, None, {})
    assert set(credential.files(PATHS)) == {"credentialsFile", "config"}
    restored = provider.restore(delivered(credential))
    assert restored is not None
    assert restored.files(PATHS) == credential.files(PATHS)
    assert alibaba.sts.requests == 0


async def test_a_restart_finds_the_session_in_its_files_without_asking(alibaba: AlibabaCloud) -> None:
    provider = alibaba.provider(region="cn-hangzhou")
    credential = await provider.exchange(alibaba.token())
    restored = provider.restore(delivered(credential))
    assert restored is not None
    assert restored.document() == credential.document()
    assert (restored.issued_at, restored.expires_at) == (credential.issued_at, credential.expires_at)
    assert restored.files(PATHS) == credential.files(PATHS)
    assert alibaba.sts.requests == 1


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "garbage",
        "[]",
        "{}",
        '{"profiles": 7}',
        '{"profiles": [7]}',
        '{"profiles": [{"name": "default", "mode": "AK"}]}',
        "[" * 99999,
    ],
    ids=lambda text: str(text)[:20],
)
async def test_files_that_hold_no_session_restore_nothing(alibaba: AlibabaCloud, text: str | None) -> None:
    provider = alibaba.provider()
    prior = delivered(await provider.exchange(alibaba.token()))
    files = {name: secret for name, secret in prior.files.items() if name != "credentials"}
    if text is not None:
        files["credentials"] = Secret(text)
    assert provider.restore(PriorDelivery(token=None, files=files, delivery=prior.delivery)) is None


async def test_the_command_lines_file_is_what_alibabas_sdk_reads(alibaba: AlibabaCloud, tmp_path: Path) -> None:
    credential = await alibaba.provider(region="cn-hangzhou").exchange(alibaba.token())
    (tmp_path / ".aliyun").mkdir()
    (tmp_path / ".aliyun" / "config.json").write_text(credential.files(PATHS)["credentials"].reveal())
    document = credential.document()
    found = read_by_sdk("client.get_credential()", tmp_path, ALIBABA_CLOUD_ECS_METADATA_DISABLED="true")
    assert found["provider"] == "default/cli_profile/static_sts"
    assert found["id"] == document["AccessKeyId"]
    assert (Secret(found["secret"]), Secret(found["token"])) == (document["AccessKeySecret"], document["SecurityToken"])
    assert json.loads(credential.files(PATHS)["credentials"].reveal())["profiles"][0]["region_id"] == "cn-hangzhou"


def read_by_sdk(expression: str, home: Path, **variables: str) -> dict[str, str]:
    """What alibabacloud-credentials finds in a process of its own: it reads the environment when it is imported."""
    program = (
        "import json, warnings; warnings.simplefilter('ignore')\n"
        "from alibabacloud_credentials.client import Client; client = Client()\n"
        f"found = {expression}\n"
        "print(json.dumps({'id': found.access_key_id, 'secret': found.access_key_secret, 'token': found.security_token,"
        " 'provider': found.provider_name}))"
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


async def test_the_token_file_form_is_an_ini_that_names_the_token(alibaba: AlibabaCloud) -> None:
    ini = ConfigParser()
    ini.read_string((await alibaba.provider().exchange(alibaba.token())).files(PATHS)["credentialsFile"].reveal())
    assert dict(ini["default"]) == {
        "type": "oidc_role_arn",
        "role_arn": ROLE,
        "oidc_provider_arn": PROVIDER,
        "oidc_token_file_path": f"{PATHS.directory}/token",
        "role_session_name": alibaba_settings().session("oss-reader"),
    }


@pytest.mark.parametrize("directory", ["/x#y", "/50%", "/a b", "/a;b"])
async def test_a_path_that_sdks_would_misread_is_written_in_no_ini(alibaba: AlibabaCloud, directory: str) -> None:
    paths = Paths(directory=PurePosixPath(directory))
    assert set((await alibaba.provider(exchange=False).exchange(None)).files(paths)) == {"config"}
    found = alibaba_settings().environment("oss-reader", paths)
    assert "ALIBABA_CLOUD_CREDENTIALS_FILE" in found.unset
    assert found.values["ALIBABA_CLOUD_OIDC_TOKEN_FILE"] == f"{directory}/token"


def test_the_variables_leave_an_sdk_one_way_only() -> None:
    found = alibaba_settings().environment("oss-reader", PATHS)
    assert found.values == {
        "ALIBABA_CLOUD_ROLE_ARN": ROLE,
        "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": PROVIDER,
        "ALIBABA_CLOUD_OIDC_TOKEN_FILE": f"{PATHS.directory}/token",
        "ALIBABA_CLOUD_ROLE_SESSION_NAME": alibaba_settings().session("oss-reader"),
        "ALIBABA_CLOUD_CREDENTIALS_FILE": f"{PATHS.directory}/credentialsFile",
        "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
        "ALIBABA_CLOUD_CLI_PROFILE_DISABLED": "true",
    }
    assert {"ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_CREDENTIALS_URI", "ALIBABA_CLOUD_STS_REGION"} <= set(found.unset)
    inside = alibaba_settings(region="cn-beijing", vpc=True).environment("oss-reader", PATHS)
    assert inside.values["ALIBABA_CLOUD_STS_REGION"] == "cn-beijing"
    assert inside.values["ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED"] == "true"
    assert not set(inside.values) & set(inside.unset)


async def test_the_token_and_nothing_else_leaves_for_the_configured_host(
    alibaba: AlibabaCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("ALIBABA_CLOUD_ROLE_ARN", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "ALIBABA_CLOUD_STS_REGION", "ALIBABA_CLOUD_ACCESS_KEY_ID"):
        monkeypatch.setenv(name, "trap")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty.pem"))
    monkeypatch.setenv("HOME", str(tmp_path))
    await alibaba.provider().exchange(alibaba.token())
    assert alibaba.sts.form["RoleArn"] == ROLE


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({}, []),
        ({"duration": "15m"}, []),
        ({"duration": "12h"}, []),
        ({"duration": "14m"}, ["duration"]),
        ({"duration": "13h"}, ["duration"]),
        ({"vpc": True}, ["vpc"]),
        ({"vpc": True, "region": "cn-hangzhou"}, []),
        ({"exchange": False}, []),
        ({"exchange": False, "duration": "1h"}, ["exchange"]),
        ({"endpoint": "https://sts.example"}, []),
        ({"endpoint": "https://u:p@sts.example"}, ["endpoint"]),
        ({"endpoint": "http://sts.example"}, ["endpoint"]),
        ({"endpoint": "http://127.0.0.1.example"}, ["endpoint"]),
        ({"endpoint": "http://sts.aliyuncs.com"}, ["endpoint"]),
        ({"endpoint": "http://localhost:80", "proxy": "http://proxy:3128"}, ["proxy"]),
        ({"proxy": "http://u:p@proxy:3128"}, []),
    ],
    ids=str,
)
def test_settings_that_cannot_work_together_are_named(settings: dict[str, Any], fields: list[str]) -> None:
    assert [field for field, _ in alibaba_settings(**settings).faults()] == fields


def test_the_host_is_that_of_the_region_or_of_the_vpc_unless_configured() -> None:
    assert alibaba_settings().sts.host == HOST
    assert alibaba_settings(region="eu-central-1").sts.host == "sts.eu-central-1.aliyuncs.com"
    assert alibaba_settings(region="cn-hangzhou", vpc=True).sts.host == "sts-vpc.cn-hangzhou.aliyuncs.com"
    assert alibaba_settings(region="cn-hangzhou", endpoint="https://sts.example:8443/").sts.host == "sts.example:8443"


GOOD = {
    "roleArn": [ROLE, "acs:ram::123456:role/AliyunECSInstance.Role-1", f"acs:ram::1234567890123456:role/{'r' * 64}"],
    "oidcProviderArn": [PROVIDER, "acs:ram::123456:oidc-provider/ack-rrsa-c0123", "acs:ram::123456:oidc-provider/a_b.c"],
    "region": ["cn-hangzhou", "eu-central-1", "us-east-1", "ap-southeast-6", "cn-shanghai-finance-1"],
    "sessionName": ["ab", "a.b@c-d_e", "x" * 64],
    "endpoint": ["https://sts.aliyuncs.com", "https://sts-vpc.cn-hangzhou.aliyuncs.com", "http://127.0.0.1:1"],
}
SPOOFS = {
    "roleArn": [
        "",
        "arn:aws:iam::123456789012:role/x",
        "acs:ram::1234567890123456:user/x",
        "acs:ram::*:role/x",
        "acs:ram::1234567890123456:role/",
        "acs:ram::1234567890123456:role/a/b",
        "acs:ram::1234567890123456:role/x\n",
        "acs:ram::1234567890123456:role/x y",
        "acs:ram::１２３４５６７８:role/x",  # digits, but not ours
        "acs:ram::1234567890123456:role/rôle",
        f"acs:ram::1234567890123456:role/{'r' * 65}",
        " acs:ram::1234567890123456:role/x",
        "acs:ram:cn-hangzhou:1234567890123456:role/x",
    ],
    "oidcProviderArn": [
        ROLE,
        "acs:ram::1234567890123456:oidc-provider/",
        "acs:ram::1234567890123456:oidc-provider/https://x",
        "acs:ram::1234567890123456:oidc-provider/a'b",
        "acs:ram::1234567890123456:oidc-provider/x#y",
        "acs:ram::1234567890123456:saml-provider/x",
    ],
    "region": ["CN-HANGZHOU", "cn", "cn-hangzhou.evil.example", "cn-hangzhou/", "cn-hangzhou@evil", "cn-hangzhou\n", "сn-hangzhou", ""],
    "sessionName": ["a", "a b", "a/b", "x" * 65, "a=b", "a#b", "ä" * 3],
    "endpoint": [
        "sts.aliyuncs.com",
        "https://",
        "ftp://sts.aliyuncs.com",
        "https://sts.aliyuncs.com/?a",
        "https://sts.аliyuncs.com",
        "https://a\\b",
    ],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in GOOD.items() for value in values])
def test_what_alibaba_names_things_is_accepted(field: str, value: str) -> None:
    alibaba_settings(**{field: value})


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in SPOOFS.items() for value in values])
def test_what_only_looks_like_it_is_refused(field: str, value: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        alibaba_settings(**{field: value})


def test_a_session_name_is_stable_unlike_any_other_identitys_and_of_what_alibaba_allows() -> None:
    settings = alibaba_settings()
    long = "demo." + "x" * 200
    assert settings.session("a") == settings.session("a") != settings.session("b")
    assert settings.session("a") != alibaba_settings(roleArn=OTHER).session("a")
    assert len(settings.session(long)) <= 64
    alibaba_settings(sessionName=settings.session(long))


def test_the_trust_to_create_names_issuer_audience_and_subject_by_equality() -> None:
    trust = alibaba_settings().trust(issuer="https://issuer.example", subject=SUBJECT)
    condition = trust.policy()["Statement"][0]["Condition"]
    equal = {"oidc:iss": ["https://issuer.example"], "oidc:aud": ["sts.aliyuncs.com"], "oidc:sub": [SUBJECT]}
    assert condition == {"StringEquals": equal}
    text = "\n".join(trust.lines())
    assert "aliyun ims CreateOIDCProvider --OIDCProviderName cluster --IssuerUrl https://issuer.example" in text
    assert "aliyun ram CreateRole --RoleName oss-reader" in text
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    assert "not an https URL" in "\n".join(alibaba_settings().trust(issuer="http://i", subject="x").lines())


def test_an_issuer_out_of_a_token_becomes_no_command() -> None:
    told = {"role": ROLE, "provider": PROVIDER, "subject": "x", "audiences": ("a",)}
    assert RoleTrust(issuer="https://a\nrm -rf /", **told).lines() == []
    quoted = "\n".join(RoleTrust(issuer="https://a/$(touch${IFS}x)'", **told).lines())
    command = next(line for line in quoted.splitlines() if line.startswith("aliyun ims"))
    echoed = subprocess.run(["sh", "-c", command.replace("aliyun", "printf '%s\\n'")], capture_output=True, text=True, check=True).stdout
    assert "https://a/$(touch${IFS}x)'" in echoed.splitlines()
