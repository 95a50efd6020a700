"""What connections may cost: bodies that nobody wants, connections that come and say nothing, others that never end."""

import asyncio
import gzip
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from aiohttp import web

from agent.serving import capacity
from agent.serving.listener import listening
from agent.settings import Address
from tests.processor import own_time
from tests.serving.endpoint import AUTHORIZATION, NAME, PATH, endpoint, reply

HERE = Address("127.0.0.1", 0)


async def hello(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="hello")


@contextmanager
def crowd(port: int, size: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections, of which each has said that. Nothing here yields to the loop."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(size)]
        for one in made:
            one.sendall(said)
            one.setblocking(False)
        yield made


async def answered(one: socket.socket) -> int:
    """The status; 0 where the connection was closed without one."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(60):
            return reply(await loop.sock_recv(one, 4096)).status
    except ConnectionError:
        return 0


async def test_a_body_is_taken_as_it_is_sent_and_not_inflated() -> None:
    """8 KB can be 8 MB."""

    async def measure(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=str(len(await request.read())))

    bomb = gzip.compress(bytes(7_000_000))
    async with listening(measure, [HERE], "metadata") as bound:
        reader, writer = await asyncio.open_connection("127.0.0.1", bound[0].port)
        head = f"PUT / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + bomb)
        assert reply(await reader.read()).body == str(len(bomb)).encode()
        writer.close()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "nonsense"])
async def test_a_body_that_is_not_what_it_says_is_nothing_to_talk_about(encoding: str, caplog: pytest.LogCaptureFixture) -> None:
    """The connection stays open, so the server reads on."""
    request = f"PUT / HTTP/1.1\r\nHost: x\r\nContent-Encoding: {encoding}\r\nContent-Length: 6\r\n\r\nabcdef".encode()
    async with listening(hello, [HERE], "metadata") as bound:
        with crowd(bound[0].port, 1, request + request) as (one,):
            assert await answered(one) in {200, 400}
            await asyncio.sleep(0.05)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_new_connection_is_not_closed_before_idle_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity.resource, "getrlimit", lambda _: (128 * capacity.FILES_SHARE, 4096))
    once = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    async with listening(hello, [HERE], "metadata") as bound:
        with crowd(bound[0].port, 128, once) as idle:
            assert {await answered(one) for one in idle} == {200}
            with crowd(bound[0].port, 1, once) as (asking,), crowd(bound[0].port, 100):
                assert await answered(asking) == 200


async def test_evicted_connections_without_their_body_are_forgotten_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 8)
    async with listening(hello, [HERE], "metadata") as bound:
        before = len(asyncio.all_tasks())
        for _ in range(10):
            with crowd(bound[0].port, 8, b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n") as held:
                assert {await answered(one) for one in held} <= {0, 200}
        last = own_time() + 2.5
        while len(asyncio.all_tasks()) > before + 8:
            assert own_time() < last, f"{len(asyncio.all_tasks())} tasks remain"
            await asyncio.sleep(0.05)


async def test_waiting_requests_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 40)
    async with endpoint(patience=10.0) as one:
        one.enrol()
        one.grant()
        one.enrol("slow")
        with crowd(
            one.port, 60, f"GET {PATH.replace(NAME, 'slow')} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {AUTHORIZATION}\r\n\r\n".encode()
        ):
            while one.server._waiting < 32:
                await asyncio.sleep(0)
            for _ in range(3):
                assert (await one.ask()).status == 200
            assert one.server._waiting == 32, "13/16 of 40"


async def test_who_asks_and_does_not_read_gives_way_and_its_file_is_free_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers fill every buffer there is, and a connection that is merely closed stays until they are read."""
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(capacity, "MAX_UNREAD_BYTES", sys.maxsize)
    asked = 0

    async def plenty(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(body=bytes(20_000_000 if request.path == "/plenty" else 1))

    async with listening(plenty, [HERE], "metadata") as bound:
        with crowd(bound[0].port, 8, b"GET /plenty HTTP/1.1\r\nHost: x\r\n\r\n"):
            while asked < 8:
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            before = len(os.listdir("/proc/self/fd"))
            with crowd(bound[0].port, 8, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as asking:
                assert [await answered(one) for one in asking] == [200] * 8
                assert len(os.listdir("/proc/self/fd")) <= before + 8  # theirs: as many here as there
