"""EC2's instance metadata service, request by request."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping

import pytest
from msgspec.structs import replace

from agent.errors import Unavailable
from agent.model import Key
from agent.serving.dialects.imds import Imds
from agent.serving.dialects.session_tokens import Sessions
from tests.fakes import FakeClock
from tests.servers.cloud import aws_settings
from tests.serving.endpoint import CANARIES, NAME, Endpoint, Reply, endpoint

ROLE = "arn:aws:iam::123456789012:role/team/s3-reader-role"
FACTS = aws_settings(roleArn=ROLE).facts()
BELOW = f"/aws/{NAME}/imds"
CREDENTIALS = "/latest/meta-data/iam/security-credentials/"
TTL = "X-aws-ec2-metadata-token-ttl-seconds"


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint(None, FakeClock()) as served:
        served.enrol(dialects=("imds",), default=True, facts=FACTS, margin=1500.0)
        served.grant()
        yield served


async def session(one: Endpoint, base: str = BELOW, ttl: str = "21600") -> str:
    found = await put(one, base, ttl)
    assert found.status == 200
    return found.body.decode()


async def put(one: Endpoint, base: str = BELOW, ttl: str | None = "21600", **headers: str) -> Reply:
    more = {TTL: ttl} if ttl is not None else {}
    return await one.ask(f"{base}/latest/api/token", method="PUT", authorization=None, **more, Content_Length="0", **headers)


async def get(one: Endpoint, path: str, token: str | None, base: str = BELOW, method: str = "GET", **headers: str) -> Reply:
    more = {"X-aws-ec2-metadata-token": token} if token is not None else {}
    return await one.ask(base + path, method=method, authorization=None, **more, **headers)


def clean(found: Reply) -> bool:
    return not any(canary.encode() in found.raw for canary in CANARIES)


@pytest.mark.parametrize("base", ["", BELOW])
async def test_an_sdk_gets_the_credential_in_three_requests(one: Endpoint, base: str) -> None:
    token = await session(one, base)
    listing = await get(one, CREDENTIALS, token, base)
    assert (listing.status, listing.body) == (200, b"s3-reader-role"), "without a line break: Rust's uses it as it is"
    found = await get(one, f"{CREDENTIALS}s3-reader-role", token, base)
    assert (found.status, found.headers["content-type"], found.headers["server"]) == (200, "text/plain", "EC2ws")
    assert found.json == {
        "Code": "Success",
        "LastUpdated": "2026-01-01T00:00:00Z",
        "Type": "AWS-HMAC",
        "AccessKeyId": CANARIES[0],
        "SecretAccessKey": CANARIES[1],
        "Token": CANARIES[2],
        "Expiration": "2026-01-01T01:00:00Z",
        "AccountId": "123456789012",
    }


async def test_the_role_is_listed_with_and_without_a_slash_at_the_end(one: Endpoint) -> None:
    token = await session(one)
    assert (await get(one, CREDENTIALS.rstrip("/"), token)).body == b"s3-reader-role"


@pytest.mark.parametrize("ttl", ["1", "300", "21600"])
async def test_the_lifetime_asked_for_is_echoed(one: Endpoint, ttl: str) -> None:
    found = await put(one, ttl=ttl)
    assert (found.status, found.headers["x-aws-ec2-metadata-token-ttl-seconds"]) == (200, ttl)
    assert (found.headers["content-type"], len(found.body)) == ("text/plain", 56)


@pytest.mark.parametrize("ttl", [None, "", "0", "21601", "-1", "1.5", "x", "1e3", "999999999999", "²", " "])
async def test_a_session_token_needs_a_lifetime_that_ec2_would_grant(one: Endpoint, ttl: str | None) -> None:
    found = await put(one, ttl=ttl)
    assert found.status == 400


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
async def test_what_was_forwarded_is_refused_with_403(one: Endpoint, header: str) -> None:
    token = await session(one)
    for found in (await put(one, **{header: "10.0.0.1"}), await get(one, f"{CREDENTIALS}s3-reader-role", token, **{header: "10.0.0.1"})):
        assert (found.status, found.headers["content-type"]) == (403, "text/plain")
        assert clean(found)


@pytest.mark.parametrize("path", [CREDENTIALS, f"{CREDENTIALS}s3-reader-role", "/latest/meta-data/placement/region", "/latest/"])
@pytest.mark.parametrize("token", [None, "", "x", "A" * 56, "=" * 8, "é"])
async def test_without_a_session_token_nothing_is_answered(one: Endpoint, path: str, token: str | None) -> None:
    found = await get(one, path, token)
    assert found.status == 401
    assert clean(found)


async def test_a_session_token_ends_is_no_other_identitys_and_no_other_processs(one: Endpoint) -> None:
    one.enrol("another", dialects=("imds",), facts=FACTS)
    one.grant("another")
    token = await session(one, ttl="60")
    assert (await get(one, CREDENTIALS, token)).status == 200
    assert (await get(one, CREDENTIALS, token, "/aws/another/imds")).status == 401
    one.clock.jump(59.9)  # type: ignore[attr-defined]
    assert (await get(one, CREDENTIALS, token)).status == 200
    one.clock.jump(0.2)  # type: ignore[attr-defined]
    assert (await get(one, CREDENTIALS, token)).status == 401
    assert (await get(one, CREDENTIALS, Sessions().open(NAME, 60, one.clock.now()))).status == 401


async def test_session_tokens_cost_no_memory(one: Endpoint) -> None:
    before = [name for name in dir(Sessions()) if not name.startswith("__")]
    assert len({await session(one) for _ in range(50)}) == 50
    sessions = one.server._dialects["imds"]._tokens._sessions  # type: ignore[attr-defined]
    assert [name for name in dir(sessions) if not name.startswith("__")] == before
    assert set(vars(sessions)) == {"_key"}


async def test_version_1_is_answered_only_where_it_is_asked_for(one: Endpoint) -> None:
    assert (await get(one, f"{CREDENTIALS}s3-reader-role", None)).status == 401
    one.enrol(dialects=("imds",), facts={**FACTS, "v1": "allowed"})
    assert (await get(one, f"{CREDENTIALS}s3-reader-role", None)).status == 200
    assert (await get(one, f"{CREDENTIALS}s3-reader-role", "wrong")).status == 401, "a wrong token is wrong all the same"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("meta-data/placement/availability-zone", "eu-west-1a"),
        ("meta-data/placement/availability-zone/", "eu-west-1a"),
        ("meta-data/placement/region", "eu-west-1"),
        ("meta-data/services/domain", "amazonaws.com"),
        ("meta-data/services/partition", "aws"),
        ("meta-data/iam", "info\nsecurity-credentials/"),
        ("meta-data/iam/", "info\nsecurity-credentials/"),
        ("meta-data/", "iam/\ninstance-id\nplacement/\nservices/"),
        ("", "dynamic/\nmeta-data/"),
    ],
)
async def test_what_sdks_ask_beside_credentials(one: Endpoint, path: str, body: str) -> None:
    found = await get(one, f"/latest/{path}", await session(one))
    assert (found.status, found.body.decode()) == (200, body)


async def test_the_documents_that_sdks_read_their_region_and_account_from(one: Endpoint) -> None:
    token = await session(one)
    document = (await get(one, "/latest/dynamic/instance-identity/document", token)).json
    assert (document["region"], document["accountId"]) == ("eu-west-1", "123456789012")
    assert document["instanceId"] == (await get(one, "/latest/meta-data/instance-id", token)).body.decode()
    info = (await get(one, "/latest/meta-data/iam/info", token)).json
    assert (info["Code"], info["InstanceProfileArn"]) == ("Success", "arn:aws:iam::123456789012:instance-profile/s3-reader-role")
    assert one.counters.handed_out_valid == {}, "none of it is a credential"


@pytest.mark.parametrize(
    "path",
    [
        f"{CREDENTIALS}other",
        f"{CREDENTIALS}S3-READER-ROLE",
        f"{CREDENTIALS}s3-reader-role/",
        f"{CREDENTIALS}../s3-reader-role",
        "/latest/user-data",
        "/latest/meta-data/nothing",
        "/latest/meta-data//iam",
        "/2021-07-15/meta-data/",
        "/",
        "",
    ],
)
async def test_what_is_not_there_is_404(one: Endpoint, path: str) -> None:
    found = await get(one, path, await session(one))
    assert found.status == 404
    assert clean(found)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_other_methods_are_405(one: Endpoint, method: str) -> None:
    found = await get(one, f"{CREDENTIALS}s3-reader-role", await session(one), method=method)
    assert found.status == 405
    assert clean(found)


async def test_a_session_token_is_only_put_and_head_has_no_body(one: Endpoint) -> None:
    assert (await get(one, "/latest/api/token", None)).status == 405
    found = await get(one, f"{CREDENTIALS}s3-reader-role", await session(one), method="HEAD")
    assert (found.status, found.body) == (200, b"")


async def test_role_is_listed_before_its_first_credential_which_is_503() -> None:
    async with endpoint(None, None, patience=Imds.timeout) as one:
        one.enrol(dialects=("imds",), facts=FACTS)
        one.store.attempted(Key(NAME), Unavailable("s3-reader: sts is away"), one.clock.now())
        token = await session(one)
        assert (await get(one, CREDENTIALS, token)).body == b"s3-reader-role"
        began = asyncio.get_running_loop().time()
        found = await get(one, f"{CREDENTIALS}s3-reader-role", token)
        assert 0.8 <= asyncio.get_running_loop().time() - began < 0.99, "boto3 waits a second"
        assert (found.status, found.headers["retry-after"]) == (503, "1")
        assert b"sts is away" in found.body
        one.grant()
        assert (await get(one, f"{CREDENTIALS}s3-reader-role", token)).status == 200


async def test_outage_serves_valid_credentials_and_no_expired_ones(one: Endpoint) -> None:
    clock = one.clock
    assert isinstance(clock, FakeClock)
    token = await session(one)
    for minutes, status, stale in ((0, 200, 0), (36, 200, 1), (23.9, 200, 2), (0.2, 503, 2)):
        clock.jump(minutes * 60)
        found = await get(one, f"{CREDENTIALS}s3-reader-role", token)
        assert (found.status, one.counters.handed_out_stale[NAME, "endpoint"]) == (status, stale), minutes


@pytest.mark.parametrize("headers", [{"X-aliyun-ecs-metadata-token": "x"}, {"X-aliyun-ecs-metadata-token-ttl-seconds": "60"}])
async def test_alibabas_clients_are_not_taken_for_awss(one: Endpoint, headers: Mapping[str, str]) -> None:
    found = await one.ask("/latest/api/token", method="PUT", authorization=None, **{TTL: "60"}, **headers)
    assert found.status == 404


async def test_well_known_paths_mean_the_configured_default_only(one: Endpoint) -> None:
    one.enrol("another", dialects=("imds",), facts=aws_settings(roleArn="arn:aws:iam::123456789012:role/another").facts())
    one.grant("another", tail="-of-another")
    token = await session(one, "")
    assert (await get(one, CREDENTIALS, token, "")).body == b"s3-reader-role"
    one.enrol(dialects=("imds",), facts=FACTS)
    assert (await get(one, CREDENTIALS, token, "")).status == 404, "nobody's now"
    one.enrol("another", dialects=("imds",), default=True, facts=aws_settings(roleArn="arn:aws:iam::123456789012:role/another").facts())
    assert (await get(one, CREDENTIALS, token, "")).status == 401, "a session of the one before"
    assert (await get(one, CREDENTIALS, await session(one, ""), "")).body == b"another"


async def test_role_not_annotated_yet_has_the_identitys_name(one: Endpoint) -> None:
    one.enrol(dialects=("imds",), facts=replace(aws_settings(fromServiceAccount=True), role_arn="").facts())
    token = await session(one)
    assert (await get(one, CREDENTIALS, token)).body == NAME.encode()
    assert (await get(one, f"{CREDENTIALS}{NAME}", token)).status == 200
    document = json.loads((await get(one, "/latest/dynamic/instance-identity/document", token)).body)
    assert document["accountId"] == ""
