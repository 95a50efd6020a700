"""How many connections, and how many unread bytes, all listeners of the process hold together, and which connection is closed first.

One bound for the process, because memory is the process's: a bound for each listener grows with the number of listeners.
"""

import resource
from collections.abc import Iterator
from typing import Protocol

MAX_CONNECTIONS = 512
"""Open connections of all listeners together. A connection costs 5 to 52 KiB, as it is filled, and a sidecar has little memory."""
FILES_SHARE = 4
"""The listeners take no more than this part of the files that the process may have open: the sinks need theirs."""
MAX_UNREAD_BYTES = 8 * 2**20
"""Bytes of answers that clients have asked for and not read, of all connections whose buffer is full. A single answer may be larger."""


class Connection(Protocol):
    """One client's."""

    @property
    def unread(self) -> int:
        """Bytes that were written and that the client has not taken."""

    def evict(self) -> None:
        """Close at once, read or not."""


class Listener(Protocol):
    """One listener's connections."""

    def __len__(self) -> int:
        """Return how many are open."""

    def victim(self) -> Connection | None:
        """Return the connection to close first; None if none may be closed."""


def most() -> int:
    """Return how many connections the listeners of this process may have open together."""
    return max(1, min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // FILES_SHARE))


class Capacity:
    """One for the process; each listener is added to it.

    The listener with the most connections gives one up, so that a flood of one listener takes no place of another:
    probes are answered while the metadata endpoint is flooded, and SDKs while the admin endpoint is.
    """

    def __init__(self) -> None:
        self._most = most()
        self._listeners: list[Listener] = []
        self._full: dict[Connection, None] = {}
        """Connections whose write buffer is full, in the order in which they became so."""

    def add(self, listener: Listener) -> None:
        """Count this listener's connections from now on."""
        self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        """Count them no longer."""
        self._listeners.remove(listener)

    def admit(self) -> bool:
        """Make room for one more connection; False if there is none.

        Connections that no request was read from yet are not closed for others, so half as many more are let in for the moment.
        """
        open_now = self._count()
        return open_now < self._most or self._close_one() or open_now < self._most + self._most // 2

    def settle(self) -> None:
        """Close one if there are too many: what could not be closed when it was admitted may be by now."""
        if self._count() > self._most:
            self._close_one()

    def fill(self, connection: Connection) -> None:
        """Note that a client does not read; those that have not read for longest are closed while too many bytes are unread."""
        self._full[connection] = None
        unread = {one: one.unread for one in self._full}
        total = sum(unread.values())
        for one in self._full.copy():
            if total <= MAX_UNREAD_BYTES or one is connection:
                break
            total -= unread[one]
            one.evict()

    def drain(self, connection: Connection) -> None:
        """Note that a client has read, or is gone."""
        self._full.pop(connection, None)

    def _count(self) -> int:
        return sum(map(len, self._listeners))

    def _close_one(self) -> bool:
        for victim in self._victims():
            victim.evict()
            return True
        return False

    def _victims(self) -> Iterator[Connection]:
        for listener in sorted(self._listeners, key=len, reverse=True):
            if victim := listener.victim():
                yield victim
