"""One identity, or several, with stand-ins around it, under a clock that tests move."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

from agent.counters import Counters
from agent.dialects import credential_margin
from agent.record import Profile
from agent.rotation.keeper import Keeper, KeeperOptions
from agent.rotation.limiter import FairLimiter
from agent.schedule import Policy
from agent.store import Store
from tests.fakes import START, FakeClock, FakeProvider, FakeSource, settle

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
CANARY = "canary-7f3a"
"""What no log may hold."""


def seconds(moments):
    return [(moment - START).total_seconds() for moment in moments]


class Rig:
    """One identity, or several, with stand-ins around it."""

    def __init__(self, *, lifetime=HOUR, credential=None, dialects=(), timeout=10.0, host="", seed=1, **policy):
        self.clock = FakeClock()
        self.store = Store()
        self.counters = Counters()
        self.limiter = FairLimiter(16)
        self.source = FakeSource(self.clock, lifetime=lifetime)
        self.provider = FakeProvider(self.clock, lifetime=credential, host=host)
        self.random = Random(seed)
        self.profile = Profile(
            name="demo",
            digest="d1",
            source="fake",
            provider="fake",
            sinks=(),
            token_policy=Policy(**policy),
            credential_policy=Policy(margin=credential_margin(dialects), **policy),
        )
        self.options = KeeperOptions(timeout=timeout)
        self.record = self.store.enrol(self.profile)
        self.tasks = []

    def keeper(self, profile=None, source=None, provider=None, options=None):
        return Keeper(
            profile or self.profile,
            source or self.source,
            provider or self.provider,
            options=options or self.options,
            store=self.store,
            limiter=self.limiter,
            clock=self.clock,
            random=self.random,
            counters=self.counters,
        )

    @asynccontextmanager
    async def running(self, *loops):
        """Runs the identity's keeper, or these coroutines."""
        loops = loops or (self.keeper().keep(),)
        self.tasks = [asyncio.ensure_future(loop) for loop in loops]
        try:
            await settle()
            yield
        finally:
            for task in self.tasks:
                if task.done() and not task.cancelled():
                    task.result()
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    @property
    def fetches(self):
        return seconds(self.source.script.calls)

    @property
    def exchanges(self):
        return seconds(self.provider.script.calls)

    def count(self, result):
        return self.counters.refreshes["demo", result]


def vars_of(profile):
    """The fields of a profile, to make another one like it."""
    return {name: getattr(profile, name) for name in profile.__dataclass_fields__}
