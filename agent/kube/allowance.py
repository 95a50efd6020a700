"""Rates: requests that begin together, bytes of a stream."""

from datetime import datetime, timedelta

from agent.clock import Clock


class Allowance:
    """A token bucket: `burst` at once, then `per_second`, first come first served. It runs no task."""

    def __init__(self, clock: Clock, *, per_second: float, burst: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = timedelta(seconds=burst / per_second)
        self._spent_until: datetime | None = None
        self._asked: datetime | None = None

    async def spend(self, amount: float = 1.0) -> None:
        """Return once this amount is allowed."""
        now = self._clock.now()
        if self._spent_until is None or self._asked is None or now < self._asked:  # the wall clock was set back
            self._spent_until = now - self._burst
        self._asked = now
        self._spent_until = max(self._spent_until, now - self._burst) + timedelta(seconds=amount / self._per_second)
        if (delay := (self._spent_until - now).total_seconds()) > 0:
            await self._clock.sleep(delay)
