"""Whatever comes in over the listener: no answer that is the server's own fault, no line in the log, no memory kept."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.serving import listener
from agent.settings import Address
from tests.serving.endpoint import CANARIES, PATH, Endpoint, Reply, endpoint, reply


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint() as running:
        running.enrol()
        running.grant()
        yield running


def refused(found: Reply, *status: int) -> None:
    """With one of these, and with nothing that is worth having."""
    assert found.status in status, found.raw
    assert not any(canary.encode() in found.raw for canary in CANARIES)


GARBAGE = [
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    b"\x00" * 1000,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost\r\n\r\n",
    b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /\x80\xff HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET http:// HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET //[x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Encoding: deflate\r\nContent-Length: 4\r\nConnection: close\r\n\r\nabcd",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\nConnection: close\r\n\r\n",
]


@pytest.mark.parametrize("raw", GARBAGE, ids=lambda raw: repr(raw[:40]))
async def test_garbage_is_no_fault_of_the_servers_and_fills_no_log(one: Endpoint, raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    refused(await one.send(raw, quiet=0.1), 0, 400, 403, 404, 405, 417)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await one.ask()).status == 200


async def test_a_bug_behind_the_listener_is_still_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_request: Any) -> Any:
        raise LookupError("a bug")

    async with listener.listening(broken, [Address("127.0.0.1", 0)], "metadata") as bound:
        reader, writer = await asyncio.open_connection("127.0.0.1", bound[0].port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert reply(await reader.read()).status == 500
        writer.close()
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [LookupError]


TOKENS = [
    b"GET",
    b"POST",
    b"\x00",
    b" ",
    b"\r\n",
    b"\n",
    b"\t",
    b":",
    b"/",
    b"?",
    b"#",
    b"%",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/2",
    b"Host: 127.0.0.1\r\n",
    b"Host: evil\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Authorization: ",
    b"\xff\xfe",
    b"Expect: 100-continue\r\n",
    b"Upgrade: h2c\r\n",
    b"Connection: close\r\n",
    PATH.encode(),
    b"/aws/other/credentials",
    b"..",
    b"\r\n\r\n",
    b"a" * 9000,
]
PIECES = st.one_of(st.sampled_from(TOKENS), st.binary(max_size=20))
REQUESTS = st.one_of(
    st.lists(PIECES, max_size=30).map(b"".join),
    st.tuples(st.binary(max_size=40), st.lists(PIECES, max_size=8).map(b"".join)).map(
        lambda parts: b"GET /" + parts[0] + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + parts[1] + b"\r\n\r\n"
    ),
)


async def test_garbage_causes_no_server_error_and_keeps_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    async with endpoint() as one:
        one.enrol()
        one.grant()
        loop = asyncio.get_running_loop()
        seen: list[int] = []

        @settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(REQUESTS, min_size=10, max_size=20))
        def try_some(raws: list[bytes]) -> None:
            async def together() -> list[Reply]:
                return await asyncio.gather(*(one.send(raw, quiet=0.02) for raw in raws))

            for found in asyncio.run_coroutine_threadsafe(together(), loop).result(10):
                for status in (found.status, *(int(part[1:4]) for part in found.raw.split(b"HTTP/1.1") if part[1:4].isdigit())):
                    assert status < 500, found.raw
                assert not any(canary.encode() in found.raw for canary in CANARIES)
                seen.append(found.status)

        await asyncio.to_thread(try_some)
        assert {400, 404} <= set(seen), "both sides of the parser were met"
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
        assert set(one.counters.metadata_requests) <= {
            (dialect, code) for dialect in ("container", "none") for code in ("403", "404", "405", "401")
        }
        assert len(one.server._guard._known) <= 64
        assert set(one.server._rendered) == set(), "nothing was handed out"
        assert (await one.ask()).status == 200


async def test_no_number_of_different_requests_makes_it_larger(one: Endpoint) -> None:
    async def some(number: int) -> None:
        await one.ask(f"/aws/nobody-{number}/credentials", Host=f"127.0.0.1:{number}")
        await one.ask(f"/{number}/x/y", method=f"M{number}", authorization=f"wrong-{number}", Host=f"evil-{number}")

    for number in range(100):
        await some(number)
    gc.collect()
    assert len(one.counters.metadata_requests) <= 6
    assert len(one.server._guard._known) == 64
    assert not one.server._rendered
