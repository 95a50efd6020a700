"""Opens and closes listeners: aiohttp's low-level server on every address of a list."""

import asyncio
import errno
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from aiohttp import web

from agent.errors import ConfigError
from agent.serving.capacity import Capacity, most
from agent.serving.connections import MAX_REQUEST_BYTES, Answering, Connections
from agent.settings import Address

log = structlog.get_logger()

BACKLOG = 1024
"""Connections that may wait to be accepted: with aiohttp's 128 a herd at a pod's start waits the second that TCP takes to try again."""
BATCHES = 32
"""A listener accepts this part of what the process may have open at a time. asyncio would take the whole backlog before it reads a
byte, and each beyond that number would be turned away, or take the place of one that has asked and was not heard."""
KERNEL_BUFFER_BYTES = 32768
"""Of a connection, each way; Linux doubles it (socket(7)). A container's memory limit counts it, and by itself Linux takes megabytes
for a client that does not read."""
SHUTDOWN_SECONDS = 0.3
"""Time for open requests when a listener closes; listeners close one after the other, within two seconds."""


@asynccontextmanager
async def listening(
    answer: Answering, addresses: Sequence[Address], purpose: str, *, socket_mode: int = 0o600, capacity: Capacity | None = None
) -> AsyncIterator[list[Address]]:
    """Listen until exit; yield the addresses that were bound (port 0 becomes a port).

    `capacity`: shared with the process's other listeners; without it the listener has one of its own.
    Raises ConfigError if an address cannot be bound.
    """
    capacity = capacity or Capacity()
    server = Connections(answer, MAX_REQUEST_BYTES if purpose != "control" else sys.maxsize, capacity)
    capacity.add(server)
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
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
        capacity.remove(server)
        _remove(bound)


async def _open(runner: web.BaseRunner, address: Address, purpose: str, socket_mode: int) -> list[Address]:
    try:
        if address.path:
            await _start(web.SockSite(runner, _unix_socket(Path(address.path), socket_mode), backlog=_batch()))
            return [address]
        before = len(runner.addresses)
        await _start(web.TCPSite(runner, address.host or None, address.port, reuse_address=True, backlog=_batch()))
        return [Address(str(name[0]) if address.host else "", int(name[1])) for name in runner.addresses[before:]][
            : None if address.host else 1
        ]
    except OSError as error:
        setting = {"control": "control.socket", "metadata": "metadata.listen", "admin": "admin.listen", "issuer": "issuer.listen"}.get(
            purpose, purpose
        )
        reason, remedy = _reason(error, address, purpose)
        raise ConfigError(f"cannot listen on {address} for {purpose}: {reason}", remedy=f"{remedy}, or set another {setting}") from None


def _reason(error: OSError, address: Address, purpose: str) -> tuple[str, str]:
    """Return the system's message and a remedy; from Python 3.13 on the error for an unassigned address has no number."""
    number = error.errno if error.errno and error.errno > 0 else errno.EADDRNOTAVAIL if "could not bind on any" in str(error) else 0
    remedy = "free it"
    match number:
        case errno.EADDRINUSE if not address.path:
            remedy = f"ss -ltnp 'sport = :{address.port}' names the program that listens there: stop it"
        case errno.EADDRNOTAVAIL if purpose in {"admin", "issuer"}:
            remedy = "correct the address: no interface of this machine has it"
        case errno.EADDRNOTAVAIL if address.host:
            remedy = f"ip address add {address.host}/{128 if ':' in address.host else 32} dev lo, as root and before the agent starts"
        case errno.EACCES if 0 < address.port < 1024:
            remedy = "a port below 1024 needs CAP_NET_BIND_SERVICE, or a lower net.ipv4.ip_unprivileged_port_start"
    return os.strerror(number) if number else str(error), remedy


def _batch() -> int:
    return max(1, most() // BATCHES)


async def _start(site: web.BaseSite) -> None:
    """Start the site, then set the backlog: asyncio uses one number for the backlog and for how many it accepts at a time."""
    await site.start()
    server = site._server  # noqa: SLF001  # as runner.addresses looks there, too
    assert isinstance(server, asyncio.Server)  # noqa: S101  # the loop is asyncio's
    for each in server.sockets:
        with socket.fromfd(each.fileno(), each.family, each.type) as listener:
            listener.listen(BACKLOG)
            if each.family != socket.AF_UNIX:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER_BYTES)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER_BYTES)


def _remove(addresses: Sequence[Address]) -> None:
    for address in addresses:
        if address.path:
            Path(address.path).unlink(missing_ok=True)


def _unix_socket(path: Path, mode: int) -> socket.socket:
    """Return a socket whose file has its final mode before a client can connect. Replaces a dead agent's file, never a live one's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise ConfigError(f"cannot use {path}: it is not a socket", remedy="remove it, or set another path")
    _bury(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(mode)  # no client can connect before it listens; a umask would apply to every thread
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
        except PermissionError:
            raise ConfigError(
                f"cannot use the socket {path}: it belongs to uid {path.lstat().st_uid}, and this agent is uid {os.geteuid()}",
                remedy="remove it if no agent of that user runs, or set another control.socket",
            ) from None
        except OSError as error:
            remedy = "stop the program that listens there, or set another path" if error.errno else "set a shorter path"
            raise ConfigError(f"cannot use the socket {path}: {error.strerror or error}", remedy=remedy) from None
    raise ConfigError(f"another agent answers on {path}", remedy="stop it, or set another control.socket")
