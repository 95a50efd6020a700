"""`refresh.maxUse` bounds how long a credential is used that cannot be renewed; `Ended` ends it at once."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest

from agent.errors import Ended, NotReady, Rejected, Unavailable
from agent.model import Key
from agent.record import Profile
from agent.rotation.courier import Courier
from agent.rotation.max_use import limit_use
from agent.schedule import Policy, Span, State, refresh_due, use_ends
from tests.fakes import START, FakeSink, settle
from tests.rig import HOUR, MINUTE, Rig, vars_of
from tests.rotation.test_adoption import left_behind

KEY = Key("demo")
BOUND = 10 * MINUTE


class Bounded(Rig):
    """One identity with a keeper, a sink with its courier, and `refresh.maxUse` unless it is None."""

    def __init__(self, *, max_use=BOUND, **rig):
        super().__init__(**{"credential": 12 * HOUR, "lifetime": 12 * HOUR, "jitter": 0.0, "max_use": max_use, **rig})
        self.sink = FakeSink(self.clock)
        self.profile = Profile(**{**vars_of(self.profile), "sinks": (self.sink.name,)})
        self.record = self.store.enrol(self.profile)
        self.max_use = max_use

    @asynccontextmanager
    async def started(self):
        courier = Courier("demo", self.sink, store=self.store, clock=self.clock, random=Random(1), counters=self.counters)
        limits = [limit_use(KEY, self.max_use, self.store, self.clock)] if self.max_use else []
        async with self.running(self.keeper().keep(sinks=[self.sink]), courier.carry(), *limits):
            yield

    @property
    def served(self):
        return self.store.usable(KEY, self.clock.now()) is not None

    @property
    def filed(self):
        return self.sink.held is not None

    def refuse(self):
        self.source.script.fault = self.provider.script.fault = Rejected("AccessDenied")


async def test_credential_is_withdrawn_at_max_use_when_the_cloud_says_no():
    rig = Bounded()
    async with rig.started():
        rig.refuse()
        await rig.clock.advance(BOUND - 1)
        assert (rig.served, rig.filed) == (True, True), "no refresh that fails withdraws by itself"
        await rig.clock.advance(1)
        assert (rig.served, rig.filed) == (False, False)
        assert rig.store.state("demo", rig.clock.now()) == State.MISSING
        assert "refresh.maxUse (10m)" in rig.record.note
        with pytest.raises(NotReady, match="AccessDenied"):
            await asyncio.wait_for(rig.store.want(KEY, rig.clock.now(), 0.01), 1)


async def test_credential_is_used_to_its_end_without_max_use():
    rig = Bounded(max_use=None)
    async with rig.started():
        rig.refuse()
        await rig.clock.advance(12 * HOUR - 1)
        assert (rig.served, rig.filed) == (True, True)


async def test_refresh_starts_before_max_use_and_success_keeps_serving():
    rig = Bounded()
    async with rig.started():
        for _ in range(60):
            await rig.clock.advance(MINUTE)
            assert (rig.served, rig.filed) == (True, True)
        assert rig.exchanges[:3] == [0, 0.8 * BOUND, 1.6 * BOUND]


async def test_bound_holds_while_an_attempt_is_under_way():
    rig = Bounded(timeout=12 * HOUR)
    async with rig.started():
        rig.source.script.hanging = rig.provider.script.hanging = True
        await rig.clock.advance(BOUND)
        assert (rig.served, rig.filed) == (False, False)


async def test_renewal_after_max_use_delivers_and_serves_again():
    rig = Bounded()
    async with rig.started():
        rig.refuse()
        await rig.clock.advance(BOUND + 1)
        before = rig.record.generations
        rig.source.script.fault = rig.provider.script.fault = None
        await rig.clock.advance(MINUTE)
        assert (rig.served, rig.filed, rig.record.note) == (True, True, "")
        assert rig.sink.held.generation == rig.record.grant.generation > before
        assert rig.store.state("demo", rig.clock.now()) == State.FRESH


async def test_variant_has_a_bound_of_its_own():
    rig = Bounded()
    variant = Key("demo", "https://vault.azure.net")
    async with rig.started():
        want = asyncio.ensure_future(rig.store.want(variant, rig.clock.now(), 5))
        await settle()
        loops = (rig.keeper().keep(variant.variant), limit_use(variant, BOUND, rig.store, rig.clock))
        async with rig.running(*loops):
            await want
            rig.refuse()
            await rig.clock.advance(BOUND)
            assert rig.store.usable(variant, rig.clock.now()) is None


@pytest.mark.parametrize(("age", "adopted"), [(BOUND - MINUTE, True), (BOUND, False)])
async def test_restart_withdraws_what_is_older_than_max_use(age, adopted):
    rig = Bounded()
    rig.sink.prior = left_behind(age=age, token_lifetime=12 * HOUR, credential_lifetime=12 * HOUR)
    rig.sink.held = rig.sink.prior.delivery
    rig.refuse()
    async with rig.started():
        assert (rig.served, rig.filed, rig.record.generations) == (adopted, adopted, int(adopted))
        await rig.clock.advance(BOUND - age)
        assert (rig.served, rig.filed) == (False, False)


async def test_withdrawal_that_a_disk_refuses_is_retried():
    rig = Bounded()
    stubborn = [OSError("CANARY"), Unavailable("no answer"), None]

    async def withdraw():
        if fault := stubborn.pop(0):
            raise fault
        rig.sink.held = None

    rig.sink.withdraw = withdraw
    async with rig.started():
        rig.refuse()
        await rig.clock.advance(BOUND)
        assert rig.filed
        failure = rig.record.sink_statuses[rig.sink.name].failure
        assert (failure.reaction, "CANARY" in failure.message) == ("defect", False)
        await rig.clock.until(lambda: not rig.filed, at_most=30)
        assert rig.record.sink_statuses[rig.sink.name].failure is None


async def test_an_ended_identity_is_withdrawn_at_once_and_asked_for_slowly():
    rig = Bounded(max_use=None)
    async with rig.started():
        assert (rig.served, rig.filed) == (True, True)
        rig.source.script.fault = Ended("its subject is not allowed")
        rig.store.nudge(KEY)
        await rig.clock.advance(0)
        assert (rig.served, rig.filed) == (False, False)
        assert rig.record.failure.reaction == "rejected"
        tried = len(rig.fetches)
        await rig.clock.advance(30 * MINUTE)
        assert 30 <= len(rig.fetches) - tried <= 60
        rig.source.script.fault = None
        rig.store.nudge(KEY)
        await rig.clock.advance(0)
        assert (rig.served, rig.filed) == (True, True)


async def test_an_ended_identity_loses_what_an_earlier_process_left():
    rig = Bounded(max_use=None)
    rig.sink.held = left_behind().delivery
    rig.source.script.fault = Ended("its subject is not allowed")
    async with rig.started():
        assert not rig.filed


async def test_an_ended_identity_loses_its_variants():
    rig = Bounded(max_use=None)
    keeper = rig.keeper()
    want = asyncio.ensure_future(rig.store.want(Key("demo", "scope"), rig.clock.now(), 5))
    await settle()
    async with rig.running(keeper.keep(), keeper.keep("scope")):
        await want
        variant = rig.store.record(Key("demo", "scope"))
        rig.source.script.fault = Ended("its subject is not allowed")
        rig.store.nudge(KEY)
        await rig.clock.advance(0)
        assert variant.grant is None


def test_due_time_follows_max_use_where_it_is_shorter_than_the_lifetime():
    span = Span(START, START + timedelta(hours=12))
    assert refresh_due(span, Policy(jitter=0.0, max_use=HOUR)) == START + timedelta(minutes=48)
    assert refresh_due(span, Policy(jitter=0.0, max_use=24 * HOUR)) == refresh_due(span, Policy(jitter=0.0))
    assert use_ends(span, Policy(max_use=1e14)) == span.expires_at
