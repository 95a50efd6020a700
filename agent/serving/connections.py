"""The connections of a listener, and the bounds within which clients may cost memory and open files.

aiohttp's low-level server has bounds for a header and for its number; together they let one connection keep a megabyte,
and any number of connections come.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from agent.serving.capacity import Capacity
from agent.serving.complaints import caused_by_client, complaints

Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
KEEPALIVE_SECONDS = 75.0
"""A connection stays open for so long after an answer."""
FIRST_REQUEST_SECONDS = 5.0
"""Time from acceptance in which the whole first request must arrive."""
SILENT_SECONDS = 1.0
"""A connection that has sent no request for so long is closed before any that was answered."""
LINGER_SECONDS = 1.0
"""Time for the rest of an unused body, so that the client does not lose the answer before it. aiohttp allows 10, and keeps evicted
connections as long: thousands a second would take a hundred megabytes."""
MAX_REQUEST_BYTES = 8192
"""A connection may send so much before its next request begins, or afterwards as an unused body."""
WRITE_BUFFER_BYTES = 16384
"""Unread bytes of a connection from which on answers wait for the client; asyncio's default is four times as much."""
TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Connections(web.Server):
    """The connections of one listener, and the server that creates them.

    The server evicts by what a connection has received, not by how idle it is: a client that keeps asking is never idle, and the
    longest-idle connection would be the one that has just connected and was not read yet.
    """

    def __init__(self, answer: Answering, largest: int, capacity: Capacity) -> None:
        """`largest`: bytes of a request. `capacity`: the process's."""
        super().__init__(self._begin)
        self.capacity = capacity
        self._answer = answer
        self._largest = largest
        self._new: dict[_Connection, None] = {}
        """Those that have begun no request, in the order of acceptance: aiohttp counts them later, and a thousand may come at a time."""
        self._known: dict[_Connection, None] = {}
        """Those that have, in the order in which they began their first."""

    def __call__(self) -> asyncio.BaseProtocol:  # type: ignore[override]  # asyncio asks for no more
        if not self.capacity.admit():
            return _TurnedAway()
        connection = _Connection(self, self._largest)
        self._new[connection] = None
        self.capacity.open += 1
        return connection

    def __len__(self) -> int:
        return len(self._new) + len(self._known)

    def __bool__(self) -> bool:
        return True

    def victim(self) -> "_Connection | None":
        """Return the connection to close first: silent for long; else served longest ago; else silent."""
        silent = next((one for one in self._new if one.silent), None)
        if silent and silent.accepted_at + SILENT_SECONDS < asyncio.get_running_loop().time():
            return silent
        return next((one for one in self._known if one.served), silent)

    def forget(self, connection: "_Connection") -> None:
        """Count it no longer."""
        if self._new.pop(connection, connection) is None or self._known.pop(connection, connection) is None:
            self.capacity.open -= 1

    def _begin(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        """For each request, so: no coroutine around the answer's own, which would cost more than all of this."""
        connection = request.protocol
        assert isinstance(connection, _Connection)  # noqa: S101  # no other is made above
        connection.heard = 0
        if connection in self._new:
            del self._new[connection]
            self._known[connection] = None
            if not connection.pipelines:
                return self._answer(request)
        elif not connection.pipelines and not self.capacity.crowded:
            return self._answer(request)
        return self._in_turn(connection, request)

    async def _in_turn(self, connection: "_Connection", request: web.BaseRequest) -> web.StreamResponse:
        """Answer when others had their turn: this client has been served before, or has sent several requests at once."""
        connection.turn = self.capacity.turn()
        await connection.turn
        connection.turn = None
        return await self._answer(request) if connection.transport else web.Response(status=503)


_receive = web.RequestHandler.data_received
"""Bound here, as it is called for each request."""


class _Connection(web.RequestHandler):
    """Counts the bytes that a client sends: aiohttp limits each header, but lets 128 of them grow to a megabyte."""

    __slots__ = ("_largest", "_server", "accepted_at", "heard", "polled", "turn")

    def __init__(self, server: Connections, largest: int) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own annotation lacks None
            logger=complaints,
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,  # an unused body could grow a thousandfold
        )
        self._server = server
        self._largest = largest
        self.heard = 0
        """Bytes since the last request began."""
        self.accepted_at = loop.time()
        self.polled = False
        """Whether the loop has had the occasion to read what was sent with the first packets."""
        self.turn: asyncio.Future[None] | None = None
        """Set while its current request waits only for other connections' requests."""

    @property
    def silent(self) -> bool:
        """Whether it could have asked by now and has not: aiohttp waits for a request, neither has one nor begins to answer one."""
        return self.polled and self._waiter is not None and not self._waiter.done() and self.transport is not None

    @property
    def served(self) -> bool:
        """Whether no answer is being made. One that is made and not read yet does not count."""
        return (self._current_request is None or self.turn is not None) and self.transport is not None

    @property
    def pipelines(self) -> bool:
        """Whether more requests have come than the one that begins."""
        return bool(self._messages)

    @property
    def unread(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport else 0

    def evict(self) -> None:
        self._server.forget(self)
        if self.transport:
            self.transport.abort()  # a close waits for a client that never reads, with its file open and its buffer full
        self.force_close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of a stream
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self._keepalive_handle:  # aiohttp has one time for a first request and for the next
            self._keepalive_handle.cancel()
            self._next_keepalive_close_time = self._loop.time() + min(FIRST_REQUEST_SECONDS, KEEPALIVE_SECONDS)
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
        self._loop.call_soon(self._loop.call_soon, self._settle)  # reading begins in the next turn of the loop, so this comes after it

    def _settle(self) -> None:
        self.polled = True
        self._server.capacity.settle()

    def data_received(self, data: bytes) -> None:
        self.heard += len(data)
        if self.heard <= self._largest:
            _receive(self, data)
        elif self.transport and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Build no record of what is never logged: a flood of invalid requests would cost twice as much."""
        if not caused_by_client(kw.get("exc_info")):
            super().log_exception(*args, **kw)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._server.capacity.fill(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._server.capacity.drain(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._server.forget(self)
        self._server.capacity.drain(self)
        if self.turn and not self.turn.done():
            self.turn.set_result(None)  # else a flood leaves thousands of requests that wait, of connections that are closed


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
