"""A keeper over an API server: the server's time is real, the keeper's is moved."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest

from agent.clock import WallClock
from agent.counters import Counters
from agent.model import Key
from agent.providers.generic import GenericProvider, GenericSettings
from agent.record import Profile
from agent.rotation.keeper import Keeper, KeeperOptions
from agent.rotation.limiter import FairLimiter
from agent.schedule import Policy, State
from agent.settings import Duration, convert
from agent.sources.kubernetes import KubernetesSettings, KubernetesSource
from agent.store import Store
from tests.fakes import FakeClock
from tests.kube.proxy import Fault

REQUEST = "POST /api/v1/namespaces/"


class Kept:
    """An identity of source kubernetes whose keeper runs."""

    def __init__(self, cluster, kube, clock):
        self.clock = clock
        self.proxy = cluster.proxy
        self.store = Store()
        tools = cluster.toolbox(kube, clock)
        asked = {"serviceAccount": {"namespace": cluster.namespace, "name": "app"}, "lifetime": "10m"}
        self.source = source = KubernetesSource(convert(asked, KubernetesSettings), "demo", tools)
        provider = GenericProvider(convert({"audiences": ["a"]}, GenericSettings), "demo", tools)
        policy = Policy(at=0.8, jitter=0.0)
        profile = Profile(name="demo", digest="d", source="kubernetes", provider="generic", sinks=(), token_policy=policy)
        self.record = self.store.enrol(profile)
        limiter = FairLimiter(16)
        self.keeper = Keeper(
            profile,
            source,
            provider,
            options=KeeperOptions(),
            store=self.store,
            limiter=limiter,
            clock=clock,
            random=Random(1),
            counters=Counters(),
        )

    @property
    def token(self):
        return self.record.grant and self.record.grant.token

    @property
    def attempts(self):
        return self.record.attempts

    def lasting(self, lifetime):
        """From the next request on."""
        self.source._settings = msgspec.structs.replace(self.source._settings, lifetime=Duration.parse(lifetime))

    async def until(self, done):
        async with asyncio.timeout(60):
            while not done():
                await asyncio.sleep(0.005)

    async def pass_time(self, seconds, step=1.0):
        """Steps, between which whatever was sent is answered."""
        while seconds > 0:
            requests = self.proxy.count(REQUEST)
            await self.clock.advance(min(step, seconds))
            seconds -= step
            if self.proxy.count(REQUEST) != requests:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)
        await self.clock.advance(0)


@asynccontextmanager
async def keeping(cluster, clock=None):
    clock = clock or FakeClock(datetime.now(UTC) + timedelta(seconds=5))  # a keeper is never behind its giver here
    async with cluster.clients(clock) as kube:
        kept = Kept(cluster, kube, clock)
        task = asyncio.ensure_future(kept.keeper.keep())
        try:
            await kept.until(lambda: kept.token)
            await asyncio.sleep(0.02)
            yield kept
        finally:
            task.cancel()
            await asyncio.wait({task})


async def test_a_token_of_600_s_is_due_480_s_after_it_was_issued_and_replaced_by_one_request(cluster):
    async with keeping(cluster) as kept:
        first = kept.token
        assert kept.record.due == first.issued_at + timedelta(seconds=480)
        assert first.expires_at == first.issued_at + timedelta(seconds=600)
        await kept.clock.advance((kept.record.due - kept.clock.now()).total_seconds() - 1)
        await asyncio.sleep(0.05)
        assert cluster.proxy.count(REQUEST) == 1
        await kept.clock.advance(1.0)
        await kept.until(lambda: kept.attempts == 2)
        assert cluster.proxy.count(REQUEST) == 2


async def test_a_forced_refresh_is_one_request(cluster):
    async with keeping(cluster) as kept:
        first = kept.token
        await asyncio.sleep(1.0)  # the server counts whole seconds, and so the next token lasts longer
        kept.store.renew("demo", kept.clock.now())
        await kept.until(lambda: kept.token is not first)
        await asyncio.sleep(0.05)
        assert kept.token.expires_at > first.expires_at
        assert cluster.proxy.count(REQUEST) == 2


@pytest.mark.parametrize("how", ["busy", "cut", "away"])
async def test_past_an_outage_what_is_valid_is_served_and_the_end_is_noticed_without_a_storm(cluster, how):
    async with keeping(cluster) as kept:
        token = kept.token
        if how == "away":
            await cluster.proxy.down()
        cluster.proxy.always = {"busy": Fault(status=503), "cut": Fault(cut=True), "away": None}[how]
        left = (token.expires_at - kept.clock.now()).total_seconds()
        await kept.pass_time(left - 2, step=2.0)  # past due, and nearly past the token
        assert kept.token is token
        assert kept.store.usable(Key("demo"), kept.clock.now()) is not None
        assert kept.record.failure.reaction == "unavailable"
        assert 2 <= kept.attempts <= 40
        await kept.pass_time(3)
        assert kept.store.usable(Key("demo"), kept.clock.now()) is None
        assert kept.store.state("demo", kept.clock.now()) is State.EXPIRED
        before = kept.attempts
        await kept.pass_time(600, step=2.0)
        assert kept.attempts - before <= 25  # one a minute, and jitter
        cluster.proxy.always = None
        if how == "away":
            await cluster.proxy.up()
        kept.lasting("2h")  # by the keeper's clock it is long past what the server's tokens of 10 min would last
        sent = cluster.proxy.count(REQUEST)
        await kept.pass_time(61)
        await kept.until(lambda: kept.token is not token)
        assert kept.record.failure is None
        assert cluster.proxy.count(REQUEST) == sent + 1


async def test_an_own_token_that_died_in_an_outage_costs_nothing_once_there_is_another(cluster):
    async with keeping(cluster) as kept:
        token, good = kept.token, (cluster.folder / "token").read_text()
        cluster.own_token("no.longer.good")
        await kept.clock.advance((kept.record.due - kept.clock.now()).total_seconds())
        await kept.until(lambda: kept.record.failure)
        assert kept.record.failure.reaction == "rejected"
        assert "no.longer.good" not in kept.record.failure.message + kept.record.failure.remedy
        assert kept.token is token
        failed = kept.attempts  # while the busy machine was asked, the test's clock may have reached a second try
        cluster.own_token(good)
        for _ in range(61):  # and no longer: by the keeper's clock what the server grants now is soon due again
            await kept.pass_time(1)
            if kept.record.failure is None:
                break
        await kept.until(lambda: kept.record.failure is None)
        assert kept.attempts == failed + 1


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_a_token_is_replaced_in_real_time_before_the_first_one_ends(cluster):
    async with keeping(cluster, WallClock()) as kept:
        first = kept.token
        async with asyncio.timeout(540):
            while kept.token is first:
                await asyncio.sleep(0.5)
        late = (datetime.now(UTC) - first.issued_at).total_seconds() - 480
        assert 0 <= late < 5
        assert kept.token.expires_at > first.expires_at
        assert cluster.proxy.count(REQUEST) == 2
        for token in (first, kept.token):
            await cluster.verified(token.value.reveal(), "a")
