"""What the followers of one API server share: an outage, and how much of them comes at once."""

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from agent.errors import NotReady, Rejected, Unavailable
from agent.kube.allowance import Allowance
from agent.kube.errors import Attempt
from agent.kube.outage import LONGEST_PAUSE_SECONDS, SETTLING_SECONDS, SPREAD_SECONDS, Outage
from tests.fakes import FakeClock, settle
from tests.kube.proxy import Fault


class Crowd:
    """So many followers of a server that is down until it is up."""

    def __init__(self, count):
        self.clock = FakeClock()
        self.outage = Outage(self.clock)
        self.up = False
        self.tried, self.listed = [], []
        lists = Allowance(self.clock, per_second=40, burst=10)
        self.tasks = [asyncio.ensure_future(self._follow(Random(seed), lists)) for seed in range(count)]

    async def _follow(self, random, lists):
        while True:
            await lists.spend()
            self.tried.append(self.clock.now())
            if self.up:
                self.outage.answered()
                self.listed.append(self.clock.now())
                return
            await self.outage.wait(random)

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


async def test_a_thousand_followers_try_a_dead_server_as_often_as_one():
    counts = []
    for followers in (1, 1000):
        crowd = Crowd(followers)
        await crowd.clock.advance(60)
        began = len(crowd.tried)
        await crowd.clock.advance(300)
        counts.append(len(crowd.tried) - began)
        await crowd.end()
    assert all(300 / LONGEST_PAUSE_SECONDS <= count <= 2 * 300 / LONGEST_PAUSE_SECONDS + 1 for count in counts), counts


async def test_a_follower_is_back_within_five_seconds_and_a_thousand_list_fifty_a_second():
    for followers in (1, 1000):
        crowd = Crowd(followers)
        await crowd.clock.advance(120)
        crowd.up, back = True, crowd.clock.now()
        for _ in range(400):
            await crowd.clock.advance(0.1)
        assert len(crowd.listed) == followers
        assert crowd.listed[0] - back <= timedelta(seconds=LONGEST_PAUSE_SECONDS)
        if followers == 1:
            assert LONGEST_PAUSE_SECONDS + SPREAD_SECONDS < 5
        for start in crowd.listed:
            assert sum(start <= one < start + timedelta(seconds=1) for one in crowd.listed) <= 50
        await crowd.end()


async def test_a_caller_that_gives_up_passes_its_turn_on():
    clock = FakeClock()
    outage = Outage(clock)
    first, second = (asyncio.ensure_future(outage.wait(Random(seed))) for seed in (1, 2))
    await settle()
    first.cancel()
    await clock.advance(LONGEST_PAUSE_SECONDS)
    assert second.done()
    await asyncio.gather(first, return_exceptions=True)


async def test_an_allowance_survives_a_clock_that_is_set_back():
    clock = FakeClock()
    allowance = Allowance(clock, per_second=1, burst=2)
    await allowance.spend(2)
    clock.jump(-3600)
    waiting = asyncio.ensure_future(allowance.spend(2))
    await settle()
    assert waiting.done()
    waiting = asyncio.ensure_future(allowance.spend(1))
    await clock.advance(0.9)
    assert not waiting.done()
    await clock.advance(0.2)
    assert waiting.done()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_soon_after_an_outage_is_retried_soon(cluster, status):
    """An API server that has just started refuses until it has loaded its rules."""
    clock = FakeClock(datetime.now(UTC))
    question = Attempt(verb="create", resource="serviceaccounts/token", namespace="demo", name="app")
    async with cluster.clients(clock) as clients:
        kube = clients.client()
        cluster.proxy.always = Fault(status=status)
        with pytest.raises(Rejected):
            await kube.ask("GET", "/version", question, whose="app")
        await cluster.proxy.down()
        with pytest.raises(Unavailable):
            await kube.ask("GET", "/version", question, whose="app")
        await cluster.proxy.up()
        with pytest.raises(NotReady):
            await kube.ask("GET", "/version", question, whose="app")
        clock.jump(SETTLING_SECONDS)
        with pytest.raises(Rejected):
            await kube.ask("GET", "/version", question, whose="app")
