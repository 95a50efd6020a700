"""Stand-ins that tests steer: a clock that moves when told to, a source and a provider that do as told."""

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Stands still until `advance` moves it, waking sleepers in order."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._order = count()

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + timedelta(seconds=seconds), next(self._order), future))
        await future

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        if event.is_set() or seconds <= 0:
            return event.is_set()
        sleeper = asyncio.ensure_future(self.sleep(seconds))
        waiter = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({sleeper, waiter}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            waiter.cancel()
        return event.is_set()

    def jump(self, seconds: float) -> None:
        """The wall clock is set, forwards or backwards; nobody's timer fires for it, as when the machine slept."""
        self._now += timedelta(seconds=seconds)
        self._sleepers = [(deadline + timedelta(seconds=seconds), order, future) for deadline, order, future in self._sleepers]

    async def advance(self, seconds: float) -> None:
        """Time passes; every sleeper due in it wakes at its own moment."""
        target = self._now + timedelta(seconds=seconds)
        await settle()
        while True:
            self._sleepers = [entry for entry in self._sleepers if not entry[2].done()]
            heapq.heapify(self._sleepers)
            if not self._sleepers or self._sleepers[0][0] > target:
                break
            deadline, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, deadline)
            future.set_result(None)
            await settle()
        self._now = target
        await settle()

    async def until(self, done: Callable[[], bool], *, at_most: float = 600.0, step: float = 1.0) -> None:
        """Lets time pass in steps until something is so."""
        passed = 0.0
        await settle()
        while not done():
            assert passed < at_most, f"not so after {at_most} s"
            await self.advance(step)
            passed += step


async def settle(rounds: int = 25) -> None:
    """Lets every task that can run do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)
