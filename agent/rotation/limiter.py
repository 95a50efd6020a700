"""How many exchanges run at a time against one security token service, shared fairly between namespaces.

A namespace may use at most half of a host's slots and takes turns with the others, so that one tenant's five hundred
failing identities do not hold up another's one.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.liveness import within


class FairLimiter:
    """Slots per host."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._hosts: dict[str, _Host] = {}

    @asynccontextmanager
    async def slot(self, host: str, namespace: str) -> AsyncIterator[None]:
        """Holds one of the host's slots; at once where the host is empty, for then nothing is sent."""
        if not host:
            yield
            return
        line = self._hosts.setdefault(host, _Host(self._slots))
        await line.enter(namespace)
        try:
            yield
        finally:
            line.leave(namespace)


class _Host:
    def __init__(self, slots: int) -> None:
        self._free = slots
        self._share = max(1, slots // 2)
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def enter(self, namespace: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(future)
        self._admit()
        try:
            with within(None):  # its length is the other exchanges', each with a timeout of its own
                await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(namespace)  # admitted in the same moment
            raise

    def leave(self, namespace: str) -> None:
        self._free += 1
        self._running[namespace] -= 1
        if not self._running[namespace]:
            del self._running[namespace]
        self._admit()

    def _admit(self) -> None:
        """Admit the waiting attempts that fit, one of each namespace in turn."""
        progress = True
        while self._free and progress:
            progress = False
            for namespace in list(self._waiting):
                if not self._free or self._running[namespace] >= self._share:
                    continue
                line = self._waiting.pop(namespace)
                while line and line[0].done():
                    line.popleft()
                if line:
                    line.popleft().set_result(None)
                    self._free -= 1
                    self._running[namespace] += 1
                    progress = True
                if line:
                    self._waiting[namespace] = line  # behind the others now
