"""An API server that does not answer: one of all waiting callers tries it, soon and often, and the others follow when it answers.

The number of tries does not grow with the number of identities, so none of them needs to wait long for the server's return.
"""

import asyncio
from datetime import datetime
from random import Random

from agent.clock import Clock
from agent.schedule import backoff_seconds

FIRST_PAUSE_SECONDS = 1.0
"""Before the second try, about; doubled for each further one."""
LONGEST_PAUSE_SECONDS = 3.0
"""Between two tries of the whole process."""
SPREAD_SECONDS = 0.5
"""Over which the waiting callers return."""
SETTLING_SECONDS = 60.0
"""After an outage, for which an API server may refuse requests that it will allow: it has not loaded its rules yet."""


class Outage:
    """Shared by all requests to one API server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._answers = 0
        self._answered = asyncio.Event()
        self._turn = asyncio.Lock()
        self._down = False
        self._back_at: datetime | None = None

    @property
    def settling(self) -> bool:
        """Whether the API server began to answer again a moment ago."""
        return self._back_at is not None and 0 <= (self._clock.now() - self._back_at).total_seconds() < SETTLING_SECONDS

    def unanswered(self) -> None:
        """Note that a request was not answered."""
        self._down = True

    def answered(self) -> None:
        """Note that some request was answered, whatever the status."""
        if self._down:
            self._down, self._back_at = False, self._clock.now()
        self._failures = 0
        self._answers += 1
        self._answered.set()

    async def wait(self, random: Random) -> None:
        """Return when this caller is to try, or soon after another request was answered."""
        answers = self._answers
        async with self._turn:
            if self._answers == answers:
                self._answered.clear()
                self._failures += 1
                pause = backoff_seconds(self._failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
                await self._clock.wait(self._answered, pause * (0.5 + 0.5 * random.random()))
            if self._answers == answers:
                return
        await self._clock.sleep(SPREAD_SECONDS * random.random())
