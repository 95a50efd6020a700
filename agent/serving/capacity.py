"""How many connections, and how many unread bytes, all listeners of the process hold together, and which connection is closed first.

One bound for the process, because memory is the process's: a bound for each listener grows with the number of listeners.
"""

import asyncio
import resource
from collections import deque
from typing import Protocol

MAX_CONNECTIONS = 512
"""Open connections of all listeners together. A connection costs 5 to 52 KiB, as it is filled, and a sidecar has little memory."""
FILES_SHARE = 4
"""The listeners take no more than this part of the files that the process may have open: the sinks need theirs."""
MAX_UNREAD_BYTES = 8 * 2**20
"""Bytes of answers that clients have asked for and not read, of all connections whose buffer is full. A single answer may be larger."""
CROWD = 64
"""Open connections above which clients that were served before wait for their turn."""
TURN_REQUESTS = 32
"""Requests of such clients that are answered in one turn of the loop. A new client is accepted, read and answered in some eight turns,
so that each must be short, however many are open and ask at once."""


class Connection(Protocol):
    """A client's connection."""

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

    The listener with the most connections loses one, so that a flood of one listener takes no place of another:
    probes are answered while the metadata endpoint is flooded, and SDKs while the admin endpoint is.
    """

    def __init__(self) -> None:
        self._most = most()
        self.open = 0
        """Connections of all listeners; they count."""
        self._listeners: list[Listener] = []
        self._full: dict[Connection, None] = {}
        """Connections whose write buffer is full, in the order in which they became so."""
        self._turns: deque[asyncio.Future[None]] = deque()

    def add(self, listener: Listener) -> None:
        """Count this listener's connections from now on."""
        self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        """Count them no longer."""
        self._listeners.remove(listener)

    def admit(self) -> bool:
        """Make room for one more connection; False if there is none.

        Connections that were not read yet are not closed for others, so as many more are let in for the moment.
        """
        return self.open < self._most or self._close_one() or self.open < 2 * self._most - 1

    def settle(self) -> None:
        """Close one if there are too many: what could not be closed when it was admitted may be by now."""
        if self.open > self._most:
            self._close_one()

    @property
    def crowded(self) -> bool:
        """Whether so many are open that their requests take turns."""
        return self.open > CROWD

    def turn(self) -> asyncio.Future[None]:
        """Return what is done when this request's turn has come: one after the other, so many in each turn of the loop.

        A caller that no longer needs the turn sets its result or cancels it.
        """
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if not self._turns:
            loop.call_soon(self._next_turn)
        self._turns.append(turn)
        return turn

    def _next_turn(self) -> None:
        left = TURN_REQUESTS
        while self._turns and (left or self._turns[0].done()):
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                left -= 1
        if self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)

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

    def _close_one(self) -> bool:
        for listener in sorted(self._listeners, key=len, reverse=True):
            if victim := listener.victim():
                victim.evict()
                return True
        return False
