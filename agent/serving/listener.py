"""Opens and closes listeners: aiohttp's low-level server on every address of a list."""

import asyncio
import logging
import os
import resource
import socket
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from agent.errors import ConfigError
from agent.settings import Address

log = structlog.get_logger()

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
KEEPALIVE = 75.0
"""Seconds that an idle connection stays open."""
CONNECTIONS = 512
"""Open connections of one listener, at most; each may cost twice what it sends, and a sidecar has little memory."""
SHARE = 8
"""A listener takes no more than this part of the files that the process may have open: the sinks need theirs."""
LARGEST_REQUEST = 32768
"""Bytes that a connection may send before its next request begins, or after, as a body that nobody wants."""
TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BACKLOG = 1024
"""Connections that may wait to be accepted: with aiohttp's 128 a herd at a pod's start waits the second that TCP takes to try again."""
SHUTDOWN = 0.3
"""Seconds that open requests get when the listener closes; one listener closes after the other, and all of it has two seconds."""

complaints = logging.getLogger("agent.serving")
"""What aiohttp has to say of a request, unless it is that the request was none: the client was told, and could fill the log."""
complaints.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))


@asynccontextmanager
async def listening(
    answer: Answer, addresses: Sequence[Address], purpose: str, *, socket_mode: int = 0o600
) -> AsyncIterator[list[Address]]:
    """Listens until left; yields the addresses really bound (port 0 becomes a port).

    Raises ConfigError where an address cannot be had.
    """
    server = _Server(answer, LARGEST_REQUEST if purpose != "control" else sys.maxsize)
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN)
    await runner.setup()
    bound: list[Address] = []
    try:
        for address in addresses:
            bound.extend(await _open(runner, address, purpose, socket_mode))
        if bound:
            log.info("listener.opened", purpose=purpose, addresses=[str(one) for one in bound])
        yield bound
    finally:
        await runner.cleanup()
        _remove(bound)


class _Server(web.Server):
    """Turns away connections beyond the cap, and those that send too much: what is open goes on being served."""

    def __init__(self, answer: Answer, largest: int) -> None:
        """`largest`: bytes of a request."""
        super().__init__(self._begin)
        self._answer = answer
        self._largest = largest
        self._share = max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE)

    def __call__(self) -> asyncio.BaseProtocol:  # type: ignore[override]  # asyncio asks for no more
        if len(self.connections) >= min(CONNECTIONS, self._share):
            return _TurnedAway()
        return _Connection(self, self._largest)

    def _begin(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        connection = request.protocol
        assert isinstance(connection, _Connection)  # noqa: S101  # no other is made above
        connection.heard = 0
        return self._answer(request)


class _Connection(web.RequestHandler):
    """Counts what it is sent: aiohttp bounds each header, and lets 128 of them grow to a megabyte."""

    __slots__ = ("_largest", "heard")

    def __init__(self, server: web.Server, largest: int) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, access_log=None, logger=complaints, keepalive_timeout=KEEPALIVE)  # type: ignore[arg-type]  # None is none
        self._largest = largest
        self.heard = 0
        """Bytes since the last request began."""

    def data_received(self, data: bytes) -> None:
        self.heard += len(data)
        if self.heard <= self._largest:
            super().data_received(data)
        elif self.transport and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def _open(runner: web.BaseRunner, address: Address, purpose: str, socket_mode: int) -> list[Address]:
    try:
        if address.path:
            await web.SockSite(runner, _unix_socket(Path(address.path), socket_mode), backlog=BACKLOG).start()
            return [address]
        before = len(runner.addresses)
        await web.TCPSite(runner, address.host or None, address.port, reuse_address=True, backlog=BACKLOG).start()
        return [Address(str(name[0]) if address.host else "", int(name[1])) for name in runner.addresses[before:]][
            : None if address.host else 1
        ]
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        setting = {"control": "control.socket", "metadata": "metadata.listen", "admin": "admin.listen", "issuer": "issuer.listen"}.get(
            purpose, purpose
        )
        raise ConfigError(f"cannot listen on {address} for {purpose}: {reason}", remedy=f"free it, or set another {setting}") from None


def _remove(addresses: Sequence[Address]) -> None:
    for address in addresses:
        if address.path:
            Path(address.path).unlink(missing_ok=True)


def _unix_socket(path: Path, mode: int) -> socket.socket:
    """A socket file with its final mode before anybody can connect. A left-over of a dead agent is replaced, a live one's is not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise ConfigError(f"{path} is there and is no socket", remedy="remove it, or set another path")
    _bury(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(mode)  # nobody can connect before it listens; umask would be every thread's
    except OSError:
        listener.close()
        raise
    return listener


def _bury(path: Path) -> None:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise ConfigError(
                f"cannot use the socket {path}: {error.strerror or error}", remedy="set a shorter path, or free this one"
            ) from None
    raise ConfigError(f"another agent answers on {path}", remedy="stop it, or set another control.socket")
