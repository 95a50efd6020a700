"""The admin listener under more scrapes than there should be."""

import asyncio
import time
from contextlib import closing

import pytest
from aiohttp import web

from agent.clock import WallClock
from agent.serving import capacity
from agent.serving.admin import AdminEndpoint
from agent.serving.listener import listening
from agent.settings import Address
from agent.store import Store

SCRAPES = 100


async def test_a_probe_need_not_wait_for_all_the_scrapes_that_came_before_it() -> None:
    done = 0

    def slow(_accept: str) -> tuple[bytes, str]:
        nonlocal done
        time.sleep(0.002)
        done += 1
        return b"", "text/plain"

    endpoint = AdminEndpoint(Store(), WallClock(), slow)
    async with listening(endpoint.answer, [Address("127.0.0.1", 0)], "admin") as bound:

        async def ask(path: str) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", bound[0].port)
            with closing(writer):
                writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                return await reader.read()

        scrapes = [asyncio.ensure_future(ask("/metrics")) for _ in range(SCRAPES)]
        while not done:
            await asyncio.sleep(0)
        assert (await ask("/healthz")).endswith(b"ok\n")
        assert done < SCRAPES // 2, "it came between them"
        assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in await asyncio.gather(*scrapes))


async def test_scrapes_that_wait_for_their_turn_leave_connections_to_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 16)
    endpoint = AdminEndpoint(Store(), WallClock(), lambda _accept: (b"", "text/plain"))
    asked = 0

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return await endpoint.answer(request)

    async with listening(answer, [Address("127.0.0.1", 0)], "admin") as bound:

        async def ask(path: str) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", bound[0].port)
            with closing(writer):
                writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                return await reader.read()

        async with endpoint._turn:
            scrapes = [asyncio.ensure_future(ask("/metrics")) for _ in range(16)]
            while asked < 16:
                await asyncio.sleep(0)
            assert (await ask("/healthz")).endswith(b"ok\n")
        told = [answer.partition(b"\r\n")[0] for answer in await asyncio.gather(*scrapes)]
        assert sorted(told) == [b"HTTP/1.1 200 OK"] * 4 + [b"HTTP/1.1 503 Service Unavailable"] * 12
