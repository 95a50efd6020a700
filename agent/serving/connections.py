"""The connections of a listener, and the bounds within which clients may cost memory and open files.

aiohttp's low-level server has bounds for a header and for its number; together they let one connection keep a megabyte,
and any number of connections come.
"""

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
KEEPALIVE = 75.0
"""Seconds that an idle connection stays open."""
CONNECTIONS = 512
"""Open connections of one listener, at most; each may cost twice what it sends, and a sidecar has little memory. Beyond them the
one that has been idle longest gives way: who holds connections and says nothing keeps no probe and no SDK out."""
LINGER = 1.0
"""Seconds in which the rest of a body may come that nobody wants, so that the answer before it is not lost. aiohttp's are 10, in which
a connection that gave way is remembered, too: thousands a second would be a hundred megabytes."""
SHARE = 8
"""A listener takes no more than this part of the files that the process may have open: the sinks need theirs."""
LARGEST_REQUEST = 32768
"""Bytes that a connection may send before its next request begins, or after, as a body that nobody wants."""
TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

complaints = logging.getLogger("agent.serving")
"""What aiohttp has to say of a request, unless it is that the request was none: the client was told, and could fill the log."""
complaints.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))


def most() -> int:
    """Connections that a listener of this process may have open."""
    return max(1, min(CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE))


class Connections(web.Server):
    """Those of one listener, as the server that makes them."""

    def __init__(self, answer: Answering, largest: int) -> None:
        """`largest`: bytes of a request."""
        super().__init__(self._begin)
        self._answer = answer
        self._largest = largest
        self._most = most()
        self._open: dict[_Connection, None] = {}
        """From the moment of acceptance: aiohttp counts them later, and a thousand may come at a time."""
        self._ticks = 0

    def __call__(self) -> asyncio.BaseProtocol:  # type: ignore[override]  # asyncio asks for no more
        if len(self._open) >= self._most and not self._make_room():
            return _TurnedAway()
        connection = _Connection(self, self._largest)
        self._open[connection] = None
        return connection

    def tick(self) -> int:
        """The next number: one for each connection and each request, so that who has just come has not been idle longest."""
        self._ticks += 1
        return self._ticks

    def forget(self, connection: "_Connection") -> None:
        """It is closed."""
        self._open.pop(connection, None)

    def _make_room(self) -> bool:
        idle = min((one for one in self._open if one.idle), key=lambda one: one.used, default=None)
        if idle is None:
            return False
        self.forget(idle)
        if idle.transport:
            idle.transport.abort()  # a mere close waits for whoever does not read, with its file open and its buffer full
        idle.force_close()
        return True

    def _begin(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        """For each request, so: no coroutine around the answer's own, which would cost more than all of this."""
        connection = request.protocol
        assert isinstance(connection, _Connection)  # noqa: S101  # no other is made above
        connection.heard, connection.used = 0, self.tick()
        return self._answer(request)


_receive = web.RequestHandler.data_received
"""Bound here, as it is called for each request."""


class _Connection(web.RequestHandler):
    """Counts what it is sent: aiohttp bounds each header, and lets 128 of them grow to a megabyte."""

    __slots__ = ("_largest", "_server", "heard", "used")

    def __init__(self, server: Connections, largest: int) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None is none
            logger=complaints,
            keepalive_timeout=KEEPALIVE,
            lingering_time=LINGER,
            auto_decompress=False,  # a thousandfold of what was sent, of a body that nobody wants
        )
        self._server = server
        self._largest = largest
        self.heard = 0
        """Bytes since the last request began."""
        self.used = server.tick()
        """When it was accepted or its latest request began, in the server's own count of such events."""

    @property
    def idle(self) -> bool:
        """Whether it is there and no answer is being made. One that is made and not read yet does not count."""
        return self.transport is not None and self._current_request is None

    def data_received(self, data: bytes) -> None:
        self.heard += len(data)
        if self.heard <= self._largest:
            _receive(self, data)
        elif self.transport and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._server.forget(self)


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
