"""Time, handed in so that tests can hold it still.

Waiting is measured against the wall clock in steps of at most `STEP`, because a monotonic timer stops while the
machine sleeps and a token does not (istio/ztunnel#1481).
"""

import asyncio
from datetime import UTC, datetime
from typing import Protocol

from agent.liveness import within

STEP = 60.0
"""Seconds: the wall clock is looked at no less often while waiting."""


class Clock(Protocol):
    """The time of day and the passing of it. Each wait is a promise to go on by its end: `with within(seconds)`."""

    def now(self) -> datetime:
        """Aware UTC."""

    async def sleep(self, seconds: float) -> None:
        """Returns after so many seconds."""

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """True as soon as the event is set, False after so many seconds without it."""


class WallClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        with within(seconds):
            await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        if seconds > 0:
            try:
                with within(seconds):
                    async with asyncio.timeout(seconds):
                        return await event.wait()
            except TimeoutError:
                pass
        return event.is_set()


async def wait_until(clock: Clock, deadline: datetime, event: asyncio.Event, *, began: datetime | None = None) -> bool:
    """True when the event is set first, False once the wall clock has reached the deadline, however it got there.

    `began`: a clock that has run backwards past it ends the wait too.
    """
    while (now := clock.now()) < deadline and not (began and now < began):
        if await clock.wait(event, min((deadline - now).total_seconds(), STEP)):
            return True
    return event.is_set()
