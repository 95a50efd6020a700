"""Alibaba Cloud's credentials URI, request by request."""

import logging
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from agent.errors import Unavailable
from agent.model import Key
from agent.serving.dialects.uri import Uri
from tests.fakes import FakeClock
from tests.serving.alibaba import DOCUMENT, NAME, clean, enrol, grant
from tests.serving.endpoint import AUTHORIZATION, Endpoint, Reply, endpoint

OTHER = "authorization-of-another-identity"


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint(None, FakeClock()) as served:
        enrol(served, "uri")
        grant(served)
        enrol(served, "uri", "another", authorization=OTHER)
        grant(served, "another")
        yield served


async def get(
    one: Endpoint, authorization: str = AUTHORIZATION, name: str = NAME, *, tail: str = "", method: str = "GET", **headers: str
) -> Reply:
    return await one.ask(f"/alibaba/{name}/{authorization}/credentials{tail}", method=method, authorization=None, **headers)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9481", "localhost"])
async def test_the_answer_has_every_member_that_any_sdk_wants_whatever_port_the_host_lacks(one: Endpoint, host: str) -> None:
    found = await get(one, Host=host)
    assert (found.status, found.headers["content-type"], found.headers["cache-control"]) == (200, "application/json", "no-store")
    assert found.json == DOCUMENT


async def test_a_query_makes_no_difference(one: Endpoint) -> None:
    assert (await get(one, tail="?a=b")).json == DOCUMENT


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "wrong",
        OTHER,
        AUTHORIZATION[:-1],
        f"{AUTHORIZATION}x",
        AUTHORIZATION.upper(),
        f"%61{AUTHORIZATION[1:]}",
        "..",
        "%C3%A9",
        "%",
        "None",
        "*",
    ],
)
async def test_path_without_exactly_this_authorization_is_refused(one: Endpoint, wrong: str) -> None:
    found = await get(one, wrong)
    assert found.status == (401 if wrong else 404)
    assert set(found.json) == {"Code", "Message"}
    assert clean(found)
    assert AUTHORIZATION.encode() not in found.raw


async def test_authorization_opens_its_own_identity_and_only_in_the_path(one: Endpoint) -> None:
    assert (await get(one, OTHER, "another")).status == 200
    for found in (await get(one, AUTHORIZATION, "another"), await get(one, OTHER), await get(one, "x", Authorization=AUTHORIZATION)):
        assert (found.status, found.json["Code"], clean(found)) == (401, "Unauthorized", True)


async def test_an_identity_without_authorization_is_nobodys(one: Endpoint) -> None:
    enrol(one, "uri", "open", authorization=None)
    grant(one, "open")
    assert (await get(one, "None", "open")).status == 401


@pytest.mark.parametrize(
    "path",
    [
        "/alibaba/{name}/credentials",
        "/alibaba/{name}/{auth}",
        "/alibaba/{name}/{auth}/credentials/",
        "/alibaba/{name}/{auth}/x/credentials",
        "/alibaba/{name}//credentials",
        "/alibaba/nobody/{auth}/credentials",
        "/alibaba//{auth}/credentials",
        "/aws/{name}/{auth}/credentials",
    ],
)
async def test_every_other_path_is_not_there(one: Endpoint, path: str) -> None:
    found = await one.ask(path.format(name=NAME, auth=AUTHORIZATION), authorization=None)
    assert (found.status, clean(found)) == (404, True)
    assert AUTHORIZATION.encode() not in found.raw


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
async def test_what_was_forwarded_is_refused_as_json(one: Endpoint, header: str) -> None:
    found = await get(one, **{header: "10.0.0.1"})
    assert (found.status, found.json["Code"], clean(found)) == (403, "Forbidden", True)


async def test_a_strange_host_is_refused(one: Endpoint) -> None:
    found = await get(one, Host="evil.example")
    assert (found.status, found.json["Code"], clean(found)) == (403, "Forbidden", True)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_only_get_is_answered(one: Endpoint, method: str) -> None:
    found = await get(one, method=method)
    assert (found.status, found.headers["allow"], clean(found)) == (405, "GET", True)


async def test_where_there_is_nothing_the_client_is_told_why(one: Endpoint) -> None:
    enrol(one, "uri", "new")
    one.store.attempted(Key("new"), Unavailable("new: sts is away"), one.clock.now())
    found = await get(one, name="new")
    assert (found.status, found.headers["retry-after"], found.json["Code"]) == (503, "1", "NotReady")
    assert "sts is away" in found.json["Message"]


async def test_a_session_that_has_ended_is_not_handed_out(one: Endpoint) -> None:
    one.clock.jump(3601)  # type: ignore[attr-defined]
    found = await get(one)
    assert (found.status, clean(found)) == (503, True)


async def test_the_authorization_is_in_no_log_and_no_metric(one: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        for tail in ("", " x", "\x00", "?\xff", "/x"):
            await get(one, tail=tail)
        await get(one, Host="evil.example")
        await one.send(f"GET /alibaba/{NAME}/{AUTHORIZATION}/credentials HTTP/9.9\r\n\r\n".encode(), quiet=0.05)
        await one.send(f"GET /alibaba/{NAME}/{AUTHORIZATION}/credentials HTTP/1.1\r\nHost\r\n\r\n".encode(), quiet=0.05)
    assert AUTHORIZATION not in repr([(record.getMessage(), record.exc_info, record.__dict__) for record in caplog.records])
    assert AUTHORIZATION not in repr(logs)
    assert AUTHORIZATION not in repr((one.counters.metadata_requests, one.counters.handed_out_valid))


def test_the_patience_is_less_than_the_five_seconds_of_the_sdk_for_node() -> None:
    assert Uri.timeout == 4.5
