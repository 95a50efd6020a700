"""Which connection is closed for another, on one listener and across all, and how many unread bytes there may be."""

import asyncio
import logging
import socket
from contextlib import ExitStack

import pytest
from aiohttp import web

from agent.serving import capacity, connections
from agent.serving.capacity import TURN_REQUESTS, Capacity
from agent.serving.complaints import MAX_LINES, WINDOW_SECONDS, Complaints
from agent.serving.listener import KERNEL_BUFFER_BYTES, listening
from tests.serving.endpoint import reply
from tests.serving.test_connections import HERE, answered, crowd, hello

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def is_closed(one: socket.socket) -> bool:
    """Whether the server has closed it by now; nothing else may have come."""
    await asyncio.sleep(0.05)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_clients_that_keep_asking_do_not_keep_a_new_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one has asked nothing yet, so it would be the one idle longest as soon as they ask again."""
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 5)
    async with listening(hello, [HERE], "admin") as bound:
        with crowd(bound[0].port, 4, ASK) as busy:
            assert {await answered(one) for one in busy} == {200}
            with crowd(bound[0].port, 1) as (new,):
                await asyncio.sleep(0.05)
                for one in busy:
                    one.sendall(ASK)
                    assert await answered(one) == 200
                with crowd(bound[0].port, 3, ASK) as others:
                    assert {await answered(one) for one in others} == {200}
                    new.sendall(ASK)
                    assert await answered(new) == 200


async def test_a_flooded_listener_takes_no_place_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 8)
    shared = Capacity()
    async with (
        listening(hello, [HERE], "metadata", capacity=shared) as flooded,
        listening(hello, [HERE], "admin", capacity=shared) as other,
    ):
        with crowd(other[0].port, 3, ASK) as few:
            assert {await answered(one) for one in few} == {200}
            with crowd(flooded[0].port, 20, ASK) as many:
                assert {await answered(one) for one in many} <= {0, 200}
                assert not any([await is_closed(one) for one in few])
                with crowd(other[0].port, 1, ASK) as (probe,):
                    assert await answered(probe) == 200
                    assert shared.open <= 8


async def test_all_listeners_together_have_no_more_connections_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 10)
    shared = Capacity()
    async with (
        listening(hello, [HERE], "metadata", capacity=shared) as one,
        listening(hello, [HERE], "admin", capacity=shared) as two,
        listening(hello, [HERE], "issuer", capacity=shared) as three,
    ):
        with ExitStack() as stack:
            held = [each for bound in (one, two, three) for each in stack.enter_context(crowd(bound[0].port, 10, b"GET / HTT"))]
            await asyncio.sleep(0.2)
            assert sum([not await is_closed(each) for each in held]) == shared.open == 10
    assert shared.open == 0


async def test_a_first_request_has_less_time_than_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_REQUEST_SECONDS", 0.2)
    async with listening(hello, [HERE], "metadata") as bound:
        with crowd(bound[0].port, 1) as (silent,), crowd(bound[0].port, 1, ASK[:-2]) as (half,), crowd(bound[0].port, 1, ASK) as (asked,):
            assert await answered(asked) == 200
            async with asyncio.timeout(60):
                assert [await asyncio.get_running_loop().sock_recv(one, 1) for one in (silent, half)] == [b"", b""]
            asked.sendall(ASK)
            assert await answered(asked) == 200


async def test_answers_that_clients_do_not_read_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has not been read for longest goes first; one answer alone may be as large as it likes."""
    monkeypatch.setattr(capacity, "MAX_UNREAD_BYTES", 2_500_000)
    served: list[web.BaseRequest] = []

    async def plenty(request: web.BaseRequest) -> web.StreamResponse:
        served.append(request)
        return web.Response(body=bytes(1_000_000 if request.path == "/plenty" else 4_000_000))

    async with listening(plenty, [HERE], "admin") as bound:
        with crowd(bound[0].port, 6, ASK.replace(b"/ ", b"/plenty ", 1)):
            while len(served) < 6:
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            assert [request.transport is not None for request in served] == [False] * 4 + [True] * 2
            with crowd(bound[0].port, 1, ASK) as (large,):
                found = 0
                async with asyncio.timeout(60):
                    while found < 4_000_000:
                        found += len(await asyncio.get_running_loop().sock_recv(large, 65536))


async def test_the_kernel_keeps_little_for_a_client_that_does_not_read() -> None:
    found: list[int] = []

    async def measure(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport
        here = request.transport.get_extra_info("socket")
        found.extend(here.getsockopt(socket.SOL_SOCKET, which) for which in (socket.SO_RCVBUF, socket.SO_SNDBUF))
        return await hello(request)

    async with listening(measure, [HERE], "metadata") as bound:
        with crowd(bound[0].port, 1, ASK) as (one,):
            assert await answered(one) == 200
    assert found == [2 * KERNEL_BUFFER_BYTES] * 2


async def test_a_connection_closed_while_its_body_is_awaited_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A byte of the body has just come, so that aiohttp asks for the next one on a connection that is no more."""
    served: list[web.BaseRequest] = []

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        served.append(request)
        return await hello(request)

    async with listening(note, [HERE], "metadata") as bound:
        with crowd(bound[0].port, 1, b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n") as (one,):
            assert await answered(one) == 200
            connection = served[0].protocol
            assert isinstance(connection, connections._Connection)
            connection.data_received(b"a")
            connection.evict()
            await asyncio.sleep(0.05)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_requests_of_a_crowd_take_turns() -> None:
    shared, done = Capacity(), 0

    async def wait() -> None:
        nonlocal done
        await shared.turn()
        done += 1

    waiting = [asyncio.ensure_future(wait()) for _ in range(3 * TURN_REQUESTS)]
    found = []
    while done < len(waiting):
        before = done
        await asyncio.sleep(0)
        found.append(done - before)
    assert max(found) == TURN_REQUESTS
    assert len(found) < 10


async def tasks_left(count: int) -> None:
    """Wait until there are no more tasks than these."""
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > count:
            await asyncio.sleep(0.01)


async def test_a_closed_connection_waits_for_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(capacity, "TURN_REQUESTS", 0)
    async with listening(hello, [HERE], "metadata") as bound:
        before = len(asyncio.all_tasks())
        with crowd(bound[0].port, 60, ASK * 20):
            await asyncio.sleep(0.3)  # as many as may be open, and more that wait
            await tasks_left(before + 2 * 8)
        await tasks_left(before)


async def test_a_connection_that_pipelines_lets_others_go_between() -> None:
    order: list[str] = []

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        order.append(request.path)
        return web.Response(text="hello")

    async with listening(note, [HERE], "admin") as bound:
        with crowd(bound[0].port, 1, ASK * 30) as (many,), crowd(bound[0].port, 1, ASK.replace(b"/", b"/healthz", 1)) as (probe,):
            assert await answered(probe) == 200
            assert order.index("/healthz") < 15
            assert reply(await asyncio.get_running_loop().sock_recv(many, 65536)).status == 200


def test_complaints_are_few_and_the_next_ones_say_how_many_were_dropped() -> None:
    now = 100.0
    few = Complaints(lambda: now)

    def line(error: BaseException | None = None) -> logging.LogRecord:
        return logging.LogRecord("x", logging.ERROR, "", 0, "Unhandled %s", ("fault",), (type(error), error, None) if error else None)

    assert sum(few.filter(line(ValueError())) for _ in range(100)) == MAX_LINES
    assert not few.filter(line(RuntimeError("Connection closed.")))
    now += WINDOW_SECONDS
    said = line(RuntimeError("another"))
    assert few.filter(said)
    assert said.getMessage() == "Unhandled fault (90 earlier lines were dropped)"
