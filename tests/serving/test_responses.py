"""What is written once and sent many times: the same as a response made for the one request, and never longer than it is true."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from email.utils import parsedate_to_datetime

import pytest

from tests.fakes import FakeClock
from tests.serving import azure
from tests.serving.dialects.test_every_dialect import DIALECTS, ask, enrol, grant
from tests.serving.endpoint import AUTHORIZATION, NAME, PATH, Endpoint, endpoint, framed

MOST = 2000
"""Answers of four kilobytes that are on their way at a time: what the kernel holds for one connection (net.ipv4.tcp_wmem), and some."""
GOOD = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {AUTHORIZATION}\r\n\r\n".encode()


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    """At the very start of a second."""
    async with endpoint(clock=FakeClock()) as served:
        yield served


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_it_says_what_a_response_for_one_request_says(one: Endpoint, dialect: str) -> None:
    enrol(one, dialect)
    grant(one, dialect)
    shared, own = await ask(one, dialect), await ask(one, dialect, Connection="close")
    assert own.headers["connection"] == "close", "this one was made by aiohttp"
    expected = {name: value for name, value in own.headers.items() if name not in {"connection", "date"}}
    assert {name: value for name, value in shared.headers.items() if name != "date"} == expected
    assert (shared.status, shared.body) == (200, own.body)
    assert shared.raw.splitlines()[0] == own.raw.splitlines()[0]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_it_is_of_the_second(one: Endpoint, dialect: str) -> None:
    clock = one.clock
    assert isinstance(clock, FakeClock)
    enrol(one, dialect)
    grant(one, dialect)
    dates, bodies = [], []
    for _ in range(4):
        found = await ask(one, dialect)
        dates.append(parsedate_to_datetime(found.headers["date"]) - clock.now().replace(microsecond=0))
        bodies.append(found.body)
        await clock.advance(0.75)
    assert dates == [timedelta(0)] * 4
    assert len(set(bodies)) == (4 if dialect in {"gce", "appservice", "azure-imds"} else 1), "seconds that are left count down"


@pytest.mark.parametrize(
    ("moments", "left"), [((0.0, 0.25, 0.26, 0.99), (3599, 3599, 3598, 3598)), ((0.25, 1.25, 1.26), (3599, 3598, 3597))]
)
async def test_what_is_left_is_never_said_to_be_more(one: Endpoint, moments: tuple[float, ...], left: tuple[int, ...]) -> None:
    """Of a token that ends a quarter past a second, as most do not end at the full one."""
    clock = one.clock
    assert isinstance(clock, FakeClock)
    enrol(one, "azure-imds")
    began = clock.now()
    azure.grant(one, name="azure-imds", lifetime=3599.25)
    said = []
    for moment in moments:
        await clock.advance(moment - (clock.now() - began).total_seconds())
        said.append(int((await ask(one, "azure-imds")).json["expires_in"]))
    assert tuple(said) == left


async def test_a_newer_grant_is_handed_out_within_the_same_second(one: Endpoint) -> None:
    one.enrol()
    one.grant(tail="-first")
    assert b"-first" in (await one.ask()).body
    one.grant(tail="-second")
    assert b"-second" in (await one.ask()).body


async def test_what_is_withdrawn_is_not_handed_out_within_the_same_second(one: Endpoint) -> None:
    one.enrol()
    one.grant()
    assert (await one.ask()).status == 200
    one.store.forget(NAME)
    assert (await one.ask()).status == 404


async def test_a_changed_authorization_holds_within_the_same_second(one: Endpoint) -> None:
    one.enrol()
    one.grant()
    assert (await one.ask()).status == 200
    one.enrol(authorization="another")
    assert (await one.ask()).status == 401
    assert (await one.ask(authorization="another")).status == 200


@pytest.mark.parametrize(
    ("method", "version", "header", "closes", "body"),
    [
        ("GET", "1.1", "", False, True),
        ("GET", "1.1", "Connection: close", True, True),
        ("GET", "1.0", "", True, True),
        ("GET", "1.0", "Connection: keep-alive", False, True),
        ("HEAD", "1.1", "", False, False),
    ],
)
async def test_it_keeps_to_what_the_client_said_of_its_connection(
    one: Endpoint, method: str, version: str, header: str, closes: bool, body: bool
) -> None:
    enrol(one, "gce")
    grant(one, "gce")
    path = "/computeMetadata/v1/instance/service-accounts/default/token"
    lines = [f"{method} {path} HTTP/{version}", "Host: 127.0.0.1", "Metadata-Flavor: Google", *([header] if header else [])]
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    with closing(writer):
        writer.write("\r\n".join([*lines, "", ""]).encode())
        found = await framed(reader, bodyless=not body)
        assert found.raw.startswith(f"HTTP/{version} 200 OK\r\n".encode())
        assert found.headers.get("connection", "") == (
            "close" if closes and version == "1.1" else "keep-alive" if version == "1.0" and not closes else ""
        )
        if closes:
            assert await reader.read() == b""
        else:
            writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert (await framed(reader)).raw.startswith(b"HTTP/1.1 200 OK\r\n"), "nothing else was on the way"


async def test_a_client_that_sends_and_never_reads_costs_no_memory(one: Endpoint) -> None:
    """The kernel takes what it takes; after that no answer is made before there is room for it."""
    one.enrol()
    one.grant(tail="x" * 4096)
    counter = one.counters.handed_out_valid
    answered, still = 0, 0
    _, writer = await asyncio.open_connection("127.0.0.1", one.port)  # whose reader takes 128 KiB unasked
    with closing(writer):
        while still < 5 and answered < 2 * MOST:
            writer.write(GOOD * 50)
            await asyncio.sleep(0.01)
            still = still + 1 if answered == counter[NAME, "endpoint"] else 0
            answered = counter[NAME, "endpoint"]
        writer.transport.abort()
    assert 0 < answered < MOST


async def test_a_client_that_is_gone_is_nobodys_failure(one: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    one.enrol()
    one.grant()
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        writer.write(GOOD * 20)
        await framed(reader)
        writer.transport.abort()
    assert (await one.ask()).status == 200
    assert not caplog.records
