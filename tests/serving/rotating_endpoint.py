"""A fleet with one AWS identity, the STS it asks and the endpoint it is served at, under a clock that stands still.

Requests are real and take real time; what the agent waits for passes when the test says so.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent.config.model import Config
from agent.identities.supervisor import Supervisor
from agent.model import Key
from agent.record import Record
from agent.serving.status import describe
from agent.settings import convert
from agent.store import Store
from agent.tasks import Tasks
from tests.fakes import FakeClock
from tests.servers.cloud import ROLE, Cloud, cloud
from tests.serving.endpoint import AUTHORIZATION, NAME, Endpoint, endpoint


class RotatingEndpoint:
    """Up while its context is entered."""

    def __init__(self, clock: FakeClock, cloud: Cloud, store: Store, served: Endpoint, supervisor: Supervisor) -> None:
        self.clock = clock
        self.cloud = cloud
        self.store = store
        self.endpoint = served
        self.supervisor = supervisor

    @property
    def record(self) -> Record:
        found = self.store.record(Key(NAME))
        assert found
        return found

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = describe(self.store, self.clock)["identities"][0]
        return found

    @property
    def results(self) -> dict[str, int]:
        """Attempts by result, as /metrics has them."""
        return {result: count for (_, result), count in self.cloud.toolbox.counters.refreshes.items()}

    async def attempted(self, times: int = 1) -> None:
        """Waits, in real time, until the keeper has tried so often."""
        await really(lambda: self.record.attempts >= times and self.record.due is not None)
        await asyncio.sleep(0.001)

    async def until_due(self) -> float:
        """Lets pass what has to until the next attempt, and waits for its end; returns the minutes that passed."""
        before, began = self.record.attempts, self.clock.now()
        await really(lambda: self.record.due is not None and self.record.due > self.clock.now())
        assert self.record.due
        await self.clock.advance((self.record.due - began).total_seconds())
        await self.attempted(before + 1)
        return (self.clock.now() - began).total_seconds() / 60


async def really(done: Callable[[], bool], within: float = 5.0) -> None:
    """Real time passes until it is so."""
    async with asyncio.timeout(within):
        while not done():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def rotating_endpoint(
    folder: Path, *, dialects: tuple[str, ...] = ("container",), provider: dict[str, Any] | None = None, first: bool = True, **settings: Any
) -> AsyncIterator[RotatingEndpoint]:
    """Up while entered, with the first credential brought unless `first` is False. `settings` are of the cloud."""
    clock = FakeClock()
    async with cloud(clock=clock, now=clock.now, **settings) as one:
        token = folder / "source"
        token.write_text(one.issuer.mint(now=clock.now(), exp=int(clock.now().timestamp()) + 48 * 3600))
        identity: dict[str, Any] = {
            "name": NAME,
            "source": {"type": "file", "path": str(token)},
            "provider": {"type": "aws", "roleArn": ROLE, "region": "eu-west-1", "endpoint": one.sts.url, **(provider or {})},
            "serve": {"dialects": list(dialects), "authorization": AUTHORIZATION} if dialects else {},
        }
        config = convert({"identities": [identity], "refresh": {"jitter": 0.0}}, Config)
        store = Store()
        async with endpoint(store, clock, one.toolbox.counters) as served, asyncio.TaskGroup() as group:
            supervisor = Supervisor(store, one.toolbox, Tasks(group, store, one.toolbox), {})
            await supervisor.apply(config)
            built = RotatingEndpoint(clock, one, store, served, supervisor)
            if first:
                await built.attempted()
            try:
                yield built
            finally:
                for member in supervisor._running.values():
                    for task in member.tasks:
                        task.cancel()
                await supervisor.close()
