"""The attacker: holds connections to some listeners, each of one kind of flood, and opens another for each that ends.

A process of its own: `python -S flood.py KIND,KIND… CONNECTIONS SECONDS PORT…`, so many connections to each port.
Prints `ready`, and at the end how many connections it opened.
"""

import random
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

TICK_SECONDS = 0.02
HEAD = b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n"
REQUEST = HEAD + b"\r\n"
BODY = b"PUT /x HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
METHODS = (b"PUT", b"POST", b"DELETE", b"OPTIONS", b"TRACE", b"PATCH", b"LOCK", b"PROPFIND", b"M-SEARCH", b"BREW")
TINY = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
PROXIED = b"GET /latest/meta-data/ HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-For: 10.0.0.1\r\nVia: 1.1 x\r\n\r\n"
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/openmetrics-text; version=x\r\n\r\n"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2


@dataclass(frozen=True)
class Kind:
    """What each connection of a flood does."""

    first: Callable[[int], bytes] = lambda _: b""
    """Sent at once; by the number of the connection."""
    drip: bytes = b""
    """Sent at each tick."""
    again: bytes = b""
    """Sent at each answer."""
    reads: bool = True
    ends: str = ""
    """How the client ends the connection after that: close, reset or half (it ends its own direction only)."""


def always(said: bytes) -> Callable[[int], bytes]:
    """The same for each."""
    return lambda _: said


KINDS = {
    "silent": Kind(),
    "connect and close": Kind(ends="close"),
    "connect and reset": Kind(ends="reset"),
    "half a request line": Kind(always(b"GET / HTT")),
    "one byte at a time": Kind(drip=b"G"),
    "unfinished headers": Kind(always(HEAD + b"".join(b"X%d: %s\r\n" % (number, b"a" * 50) for number in range(118)))),
    "headers drip": Kind(always(HEAD), drip=b"X: a\r\n"),
    "large headers": Kind(always(HEAD + b"".join(b"X%d: %s\r\n" % (number, b"a" * 7900) for number in range(4)) + b"X: 1")),
    "many headers": Kind(always(HEAD + b"".join(b"X%d: a\r\n" % number for number in range(500)) + b"\r\n")),
    "tiny requests 20 at a time": Kind(always(TINY * 20), again=TINY * 20),
    "tiny requests 200 at a time": Kind(always(TINY * 200)),
    "pipelined and not read": Kind(always(REQUEST * 150), drip=REQUEST * 20, reads=False),
    "answered and idle": Kind(always(REQUEST)),
    "answered and asking again": Kind(always(REQUEST), again=REQUEST),
    "HEAD": Kind(always(REQUEST.replace(b"GET", b"HEAD")), again=REQUEST.replace(b"GET", b"HEAD")),
    "many methods": Kind(lambda number: REQUEST.replace(b"GET", METHODS[number % len(METHODS)]), ends="half"),
    "upgrades": Kind(always(HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), drip=b"x" * 100),
    "bodies drip": Kind(always(BODY + b"Content-Length: 8000\r\n\r\n"), drip=b"a"),
    "bodies never come": Kind(always(BODY + b"Content-Length: 9\r\n\r\n")),
    "large bodies": Kind(always(BODY + b"Content-Length: 1000000000\r\n\r\n" + b"a" * 4000), drip=b"a" * 4000),
    "chunks of one byte": Kind(always(CHUNKED + b"1\r\na\r\n" * 1300), drip=b"1\r\na\r\n" * 10),
    "chunks with extensions": Kind(always(CHUNKED + b"1;" + b"x=y;" * 1900), drip=b"x=y;"),
    "expects 100": Kind(always(BODY + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n")),
    "garbage": Kind(lambda number: random.Random(number).randbytes(300), ends="half"),
    "TLS": Kind(always(HELLO)),
    "empty lines": Kind(always(b"\r\n" * 2000), drip=b"\r\n" * 50),
    "wrong Host and forwarded": Kind(always(PROXIED), again=PROXIED),
    "slow readers": Kind(always(SCRAPE * 3), reads=False),
}  # fmt: skip


class Slot:
    """One place of the flood: a connection, and the next when that has ended."""

    def __init__(self, number: int, kind: Kind, port: int, poll: select.epoll) -> None:
        self.number, self.kind, self.port, self.poll = number, kind, port, poll
        self.socket = socket.socket()
        self.opened = 0
        self.said = False

    def open(self) -> int:
        """Connects anew; returns the file's number."""
        self.socket.close()
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", self.port))
        self.opened += 1
        self.said = False
        self.poll.register(self.socket, select.EPOLLOUT | select.EPOLLRDHUP)
        return self.socket.fileno()

    def happened(self, events: int) -> bool:
        """False if the connection has ended."""
        if events & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP):
            return False
        if not self.said:
            return self._say()
        if events & select.EPOLLIN:
            try:
                if not self.socket.recv(65536):
                    return False
            except BlockingIOError:
                return True
            except OSError:
                return False
            return self._send(self.kind.again)
        return True

    def _say(self) -> bool:
        self.said = True
        if not self._send(self.kind.first(self.number + self.opened)) or self.kind.ends == "close":
            return False
        try:
            if self.kind.ends == "reset":
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            if self.kind.ends == "half":
                self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        self.poll.modify(self.socket, select.EPOLLRDHUP | (select.EPOLLIN if self.kind.reads else 0))
        return True

    def drip(self) -> bool:
        """Says a little more, False if the connection has ended."""
        return self._send(self.kind.drip) if self.said else True

    def _send(self, said: bytes) -> bool:
        try:
            if said:
                self.socket.send(said)
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


def flood(kinds: list[Kind], connections: int, seconds: float, ports: list[int]) -> int:
    """Returns how many connections were opened."""
    poll = select.epoll()
    slots = [
        Slot(number, kinds[number // len(ports) % len(kinds)], ports[number % len(ports)], poll)
        for number in range(connections * len(ports))
    ]
    by_file = {slot.open(): slot for slot in slots}
    dripping = [slot for slot in slots if slot.kind.drip]
    ended: list[Slot] = []
    last = time.monotonic() + seconds
    next_tick = 0.0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while (now := time.monotonic()) < last:
        for file, events in poll.poll(TICK_SECONDS):
            slot = by_file[file]
            if not slot.happened(events):
                poll.unregister(file)
                ended.append(slot)
        if now >= next_tick:
            next_tick = now + TICK_SECONDS
            for slot in dripping:
                slot.drip()
            for slot in ended:
                by_file[slot.open()] = slot
            ended.clear()
    return sum(slot.opened for slot in slots)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    chosen = [KINDS[name] for name in sys.argv[1].split(",")] if sys.argv[1] != "all" else list(KINDS.values())
    sys.stdout.write(f"{flood(chosen, int(sys.argv[2]), float(sys.argv[3]), [int(port) for port in sys.argv[4:]])}\n")
