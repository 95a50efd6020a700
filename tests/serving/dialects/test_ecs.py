"""Alibaba Cloud's instance metadata service, request by request."""

from collections.abc import AsyncIterator

import pytest

from agent.errors import Unavailable
from agent.model import Key
from agent.serving.dialects.ecs import Ecs
from tests.fakes import FakeClock
from tests.serving.alibaba import DOCUMENT, FACTS, NAME, ROLE, clean, enrol, grant
from tests.serving.endpoint import Endpoint, Reply, endpoint

ROLES = "/latest/meta-data/ram/security-credentials/"
TTL, TOKEN = "X-aliyun-ecs-metadata-token-ttl-seconds", "X-aliyun-ecs-metadata-token"


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint(None, FakeClock()) as served:
        enrol(served, "ecs", default=True, margin=3900.0)
        grant(served)
        yield served


async def put(one: Endpoint, ttl: str | None = "21600", **headers: str) -> Reply:
    more = {TTL: ttl} if ttl is not None else {}
    return await one.ask("/latest/api/token", method="PUT", authorization=None, **more, Content_Length="0", **headers)


async def session(one: Endpoint, ttl: str = "21600") -> str:
    found = await put(one, ttl)
    assert found.status == 200
    return found.body.decode()


async def get(one: Endpoint, path: str, token: str | None, method: str = "GET", **headers: str) -> Reply:
    more = {TOKEN: token} if token is not None else {}
    return await one.ask(path, method=method, authorization=None, **more, **headers)


@pytest.mark.parametrize("host", ["100.100.100.200", "127.0.0.1"])
async def test_an_sdk_gets_the_credential_in_three_requests(one: Endpoint, host: str) -> None:
    opened = await put(one, Host=host)
    assert (opened.status, opened.headers["content-type"]) == (200, "text/plain")
    token = opened.body.decode()
    listing = await get(one, ROLES, token, Host=host)
    assert (listing.status, listing.body) == (200, ROLE.encode()), "without a line break: SDKs use it as it is"
    found = await get(one, f"{ROLES}{ROLE}", token, Host=host)
    assert (found.status, found.json) == (200, DOCUMENT)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/latest/meta-data/region-id", "eu-central-1"),
        ("/latest/meta-data/region-id/", "eu-central-1"),
        ("/latest/meta-data/zone-id", "eu-central-1a"),
        (ROLES.rstrip("/"), ROLE),
        ("/latest/meta-data/ram/", "security-credentials/"),
        ("/latest/meta-data/", "ram/\nregion-id\nzone-id"),
        ("/latest/meta-data", "ram/\nregion-id\nzone-id"),
    ],
)
async def test_what_sdks_ask_beside_the_credential(one: Endpoint, path: str, body: str) -> None:
    found = await get(one, path, await session(one))
    assert (found.status, found.body.decode()) == (200, body)
    assert (await get(one, path, await session(one), "HEAD")).status == 200


async def test_what_nobody_configured_is_not_there(one: Endpoint) -> None:
    enrol(one, "ecs", default=True, facts={"role": ROLE})
    token = await session(one)
    for path in ("region-id", "zone-id", "instance-id", "ram/x", f"ram/security-credentials/{ROLE}x", "ram/security-credentials/x/"):
        found = await get(one, f"/latest/meta-data/{path}", token)
        assert (found.status, clean(found)) == (404, True)


@pytest.mark.parametrize("ttl", [None, "", "0", "21601", "-1", "1.5", "x", "999999999999", "²"])
async def test_a_session_token_needs_a_lifetime_that_ecs_would_grant(one: Endpoint, ttl: str | None) -> None:
    assert (await put(one, ttl)).status == 400


@pytest.mark.parametrize("path", [ROLES, f"{ROLES}{ROLE}", "/latest/meta-data/region-id"])
async def test_without_a_session_token_the_hardened_mode_forbids(one: Endpoint, path: str) -> None:
    found = await get(one, path, None)
    assert (found.status, clean(found)) == (403, True)


@pytest.mark.parametrize("token", ["", "x", "A" * 56, "=" * 8, "é"])
async def test_a_wrong_session_token_is_refused_even_where_none_is_needed(one: Endpoint, token: str) -> None:
    for facts in (FACTS, {**FACTS, "v1": "allowed"}):
        enrol(one, "ecs", default=True, facts=facts)
        found = await get(one, f"{ROLES}{ROLE}", token)
        assert (found.status, clean(found)) == (401, True)


async def test_the_normal_mode_is_there_only_where_it_is_asked_for(one: Endpoint) -> None:
    enrol(one, "ecs", default=True, facts={**FACTS, "v1": "allowed"})
    assert (await get(one, f"{ROLES}{ROLE}", None)).json == DOCUMENT


async def test_a_session_token_ends(one: Endpoint) -> None:
    token = await session(one, "60")
    one.clock.jump(59.9)  # type: ignore[attr-defined]
    assert (await get(one, ROLES, token)).status == 200
    one.clock.jump(0.2)  # type: ignore[attr-defined]
    assert (await get(one, ROLES, token)).status == 401


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
async def test_forwarded_request_is_refused(one: Endpoint, header: str) -> None:
    token = await session(one)
    for found in (await put(one, **{header: "10.0.0.1"}), await get(one, f"{ROLES}{ROLE}", token, **{header: "10.0.0.1"})):
        assert (found.status, found.headers["content-type"], clean(found)) == (403, "text/plain", True)


async def test_a_strange_host_is_refused(one: Endpoint) -> None:
    found = await get(one, f"{ROLES}{ROLE}", await session(one), Host="evil.example")
    assert (found.status, clean(found)) == (403, True)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_only_get_and_head_are_answered(one: Endpoint, method: str) -> None:
    found = await get(one, f"{ROLES}{ROLE}", await session(one), method)
    assert (found.status, clean(found)) == (405, True)
    assert (await get(one, "/latest/api/token", await session(one))).status == 405


async def test_where_there_is_nothing_the_client_is_told_to_come_back(one: Endpoint) -> None:
    one.store.forget(NAME)
    enrol(one, "ecs", default=True)
    one.store.attempted(Key(NAME), Unavailable("oss-reader: sts is away"), one.clock.now())
    token = await session(one)
    assert (await get(one, ROLES, token)).status == 200, "the role is known before its credential"
    found = await get(one, f"{ROLES}{ROLE}", token)
    assert (found.status, found.headers["retry-after"]) == (503, "1")
    assert b"sts is away" in found.body


async def test_it_and_ec2s_share_their_paths_and_are_told_apart_by_headers(one: Endpoint) -> None:
    one.enrol("s3-reader", dialects=("imds",), default=True, facts={"role": "s3-role", "region": "eu-west-1"})
    one.grant("s3-reader")
    ours = await session(one)
    theirs = (await one.ask("/latest/api/token", method="PUT", authorization=None, X_aws_ec2_metadata_token_ttl_seconds="60")).body.decode()
    iam = "/latest/meta-data/iam/security-credentials/"
    assert (await get(one, ROLES, ours)).body == ROLE.encode()
    assert (await get(one, "/latest/meta-data/region-id", ours)).body == b"eu-central-1"
    assert (await get(one, iam, None, X_aws_ec2_metadata_token=theirs)).body == b"s3-role"
    for found in (
        await get(one, f"{ROLES}{ROLE}", theirs),
        await get(one, f"{iam}s3-role", None, X_aws_ec2_metadata_token=ours),
        await get(one, f"{ROLES}{ROLE}", None, X_aws_ec2_metadata_token=theirs),
        await get(one, f"{iam}s3-role", ours),
        await get(one, f"{ROLES}{ROLE}", ours, X_aws_ec2_metadata_token=theirs),
    ):
        assert found.status in {401, 403, 404}
        assert clean(found)
    assert {dialect for dialect, code in one.counters.metadata_requests if code == "200"} == {"ecs", "imds"}


def test_the_patience_is_less_than_the_sdks_second() -> None:
    assert Ecs.timeout == 0.9
