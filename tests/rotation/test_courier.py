"""A courier under a clock that tests move: when it writes, when it looks, and what it makes of a bad place."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest
from structlog.testing import capture_logs

from agent.counters import Counters
from agent.errors import NotReady, Rejected, Unavailable
from agent.model import Grant, Key
from agent.record import Profile
from agent.rotation.courier import Courier
from agent.schedule import State
from agent.store import Store
from tests.fakes import START, FakeClock, FakeCredential, FakeSink, a_token, delivery_of, settle
from tests.rig import Rig

CANARY = "canary-02ab"
HOUR = 3600.0
KEY = Key("demo")


class Round:
    """One identity and its sinks, each with a courier."""

    def __init__(self, *sinks, seed=1):
        self.clock = FakeClock()
        self.store = Store()
        self.counters = Counters()
        self.sinks = [FakeSink(self.clock, name) for name in sinks or ("files:/a",)]
        self.sink = self.sinks[0]
        self.random = Random(seed)
        names = tuple(sink.name for sink in self.sinks)
        self.record = self.store.enrol(Profile(name="demo", digest="d1", source="fake", provider="fake", sinks=names))

    def grant(self, name="t1"):
        now = self.clock.now()
        credential = FakeCredential(now, now + timedelta(hours=1))
        return self.store.granted(Grant(key=KEY, digest="d1", token=a_token(now, HOUR, name), credential=credential))

    @asynccontextmanager
    async def running(self):
        couriers = [
            Courier("demo", sink, store=self.store, clock=self.clock, random=self.random, counters=self.counters) for sink in self.sinks
        ]
        self.tasks = [asyncio.ensure_future(courier.carry()) for courier in couriers]
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
    def sink_status(self):
        return self.record.sink_statuses[self.sink.name]

    def delivered(self):
        return self.store.delivered("demo", self.clock.now())

    def written(self):
        return [grant.token.id for grant in self.sink.grants]


async def test_each_grant_is_carried_at_once_and_each_only_once():
    trip = Round()
    async with trip.running():
        await trip.clock.advance(HOUR)
        assert not trip.sink.reading.calls, "nothing to look after yet"
        for name in ("t1", "t2"):
            trip.grant(name)
            await settle()
            assert trip.delivered()
            await trip.clock.advance(300)
        assert trip.written() == ["t1", "t2"]
        assert trip.sink_status.generation == 2
        assert trip.counters.writes == {(trip.sink.name, "success"): 2}


async def test_only_the_newest_of_several_grants_is_carried():
    trip = Round()
    for name in ("t1", "t2", "t3"):
        trip.grant(name)
    async with trip.running():
        assert trip.written() == ["t3"]


async def test_what_was_delivered_is_looked_at_every_ten_seconds():
    trip = Round()
    trip.grant()
    async with trip.running():
        looks = len(trip.sink.reading.calls)
        await trip.clock.advance(100)
        assert len(trip.sink.reading.calls) == looks + 10
        assert trip.sink_status.checked_at == trip.clock.now()


@pytest.mark.parametrize("how", ["gone", "older", "foreign"])
async def test_what_somebody_else_took_away_or_changed_is_put_back_within_ten_seconds(how):
    trip = Round()
    old = trip.grant("t1")
    await trip.clock.advance(1800)
    async with trip.running():
        trip.grant("t2")
        await settle()
        trip.sink.held = {"gone": None, "older": delivery_of(old), "foreign": delivery_of(old, 0)}[how]
        assert (trip.sink_status.losses, trip.sink_status.lost_at) == (0, None)
        with capture_logs() as logs:
            await trip.clock.advance(10)
        assert trip.delivered()
        assert trip.written()[-2:] == ["t2", "t2"]
        assert "delivery.lost" in [entry["event"] for entry in logs]
        found = trip.clock.now()
        assert (trip.sink_status.losses, trip.sink_status.lost_at) == (1, found)
        trip.grant("t3")
        await trip.clock.advance(100)
        assert (trip.sink_status.losses, trip.sink_status.lost_at) == (1, found), "a refresh is no loss, and takes none back"
        trip.sink.held = None
        await trip.clock.advance(10)
        assert (trip.sink_status.losses, trip.sink_status.lost_at) == (2, trip.clock.now())


async def test_what_an_earlier_process_delivered_is_not_written_again():
    trip = Round()
    grant = trip.grant()
    trip.sink.held = delivery_of(grant, 0)
    trip.store.sink_checked(KEY, trip.sink.name, START, generation=1, delivery=trip.sink.held)
    async with trip.running():
        await trip.clock.advance(100)
        assert not trip.sink.grants
        assert trip.delivered()


@pytest.mark.parametrize(
    ("fault", "reaction"),
    [
        (NotReady("soon"), "not_ready"),
        (Unavailable("no space left"), "unavailable"),
        (Rejected("read-only"), "rejected"),
        (KeyError(CANARY), "defect"),
    ],
)
async def test_a_failing_sink_is_retried_within_ten_seconds_until_it_recovers(fault, reaction):
    trip = Round()
    trip.sink.writing.fault = fault
    trip.grant()
    with capture_logs() as logs:
        async with trip.running():
            await trip.clock.advance(300)
            assert trip.sink_status.failure.reaction == reaction
            assert trip.sink_status.failure.count == len(trip.sink.writing.calls) == trip.counters.writes[trip.sink.name, reaction]
            assert 30 <= trip.sink_status.failure.count <= 70
            assert trip.store.state("demo", trip.clock.now()) == State.MISSING
            trip.sink.writing.fault = None
            await trip.clock.advance(11)
            assert trip.sink_status.failure is None
            assert trip.delivered()
    events = [entry["event"] for entry in logs]
    assert events.count("delivery.failed") == 1, "said once"
    assert events.count("delivery.recovered") == 1
    assert CANARY not in f"{logs} {trip.record}"


async def test_while_writing_fails_what_lies_there_still_counts_until_it_expires():
    trip = Round()
    trip.grant("t1")
    async with trip.running():
        await trip.clock.advance(1800)
        trip.sink.writing.fault = Unavailable("no space left")
        trip.grant("t2")
        await settle()
        assert trip.delivered()
        assert trip.sink_status.generation == 1
        assert trip.sink_status.delivery.token_expires_at == START + timedelta(hours=1)
        await trip.clock.advance(1800)
        assert trip.store.state("demo", trip.clock.now()) == State.EXPIRED


async def test_a_newer_grant_is_tried_at_once_also_where_the_last_one_failed():
    trip = Round()
    trip.sink.writing.fault = Rejected("read-only")
    trip.grant("t1")
    async with trip.running():
        trip.sink.writing.fault = None
        trip.grant("t2")
        await settle()
        assert trip.written() == ["t2"]
        assert trip.delivered()


async def test_a_place_that_takes_everything_and_keeps_nothing_is_not_believed():
    trip = Round()
    trip.sink.deaf = True
    trip.grant()
    async with trip.running():
        assert trip.sink_status.failure.reaction == "unavailable"
        assert "does not hold what was just written" in trip.sink_status.failure.message
        assert trip.sink_status.generation == 0
        assert not trip.delivered()


async def test_an_older_grant_of_the_same_times_is_not_taken_for_the_newest():
    trip = Round()
    trip.grant("t1")
    async with trip.running():
        trip.sink.deaf = True
        trip.grant("t2")
        await settle()
        assert "does not hold what was just written" in trip.sink_status.failure.message


async def test_what_a_failed_write_left_behind_is_looked_at_and_told():
    trip = Round()
    trip.grant("t1")
    async with trip.running():
        trip.sink.writing.fault, trip.sink.held = Unavailable("no space left"), None
        trip.grant("t2")
        await settle()
        assert trip.store.state("demo", trip.clock.now()) == State.MISSING


async def test_one_sink_that_hangs_leaves_the_other_sink_and_the_keeper_on_time(monkeypatch):
    monkeypatch.setattr("agent.rotation.courier.SINK_TIMEOUT_SECONDS", 0.02)
    trip = Round("files:/hangs", "files:/works")
    trip.sink.writing.hanging = trip.sink.reading.hanging = True
    rig = Rig(jitter=0.0)
    rig.store, rig.clock, rig.record = trip.store, trip.clock, trip.record
    rig.source.script.clock = rig.provider.script.clock = trip.clock
    async with trip.running(), rig.running():
        for _ in range(4):
            await trip.clock.advance(1440)
            await asyncio.sleep(0.05)
        assert rig.fetches == [0, 2880, 5760]
        assert [grant.generation for grant in trip.sinks[1].grants] == [1, 2, 3]
        assert trip.sink_status.failure.reaction == "unavailable"
        assert "has not answered for 0.02 s" in trip.sink_status.failure.message


async def test_a_full_disk_costs_no_refresh():
    trip = Round()
    trip.sink.writing.fault = Unavailable("no space left")
    rig = Rig(jitter=0.0)
    rig.store, rig.clock, rig.record = trip.store, trip.clock, trip.record
    rig.source.script.clock = rig.provider.script.clock = trip.clock
    async with trip.running(), rig.running():
        await trip.clock.advance(2879)
        assert rig.fetches == [0]
        assert len(trip.sink.writing.calls) > 100


@pytest.mark.parametrize("failing", [False, True])
async def test_a_clock_set_back_does_not_stop_the_looking(failing):
    trip = Round()
    trip.sink.writing.fault = Unavailable("no space left") if failing else None
    trip.grant()
    async with trip.running():
        await trip.clock.advance(35)
        trip.clock.jump(-86400)
        calls = trip.sink.writing.calls if failing else trip.sink.reading.calls
        before = len(calls)
        await trip.clock.advance(71)
        assert len(calls) > before


async def test_the_courier_of_an_identity_that_is_gone_ends():
    trip = Round()
    trip.grant()
    async with trip.running():
        trip.store.forget("demo")
        await settle()
        assert trip.tasks[0].done()


async def test_each_delivery_is_said_with_the_moment_until_which_it_works():
    scene = Round()
    now = scene.clock.now()
    credential = FakeCredential(now, now + timedelta(minutes=15))
    scene.store.granted(Grant(key=KEY, digest="d1", token=a_token(now, HOUR, "t1"), credential=credential))
    with capture_logs() as logs:
        async with scene.running():
            scene.grant("t2")
            await settle()
    assert [(entry["event"], entry["generation"], entry["until"]) for entry in logs] == [
        ("grant.delivered", 1, "2026-01-01T00:15:00Z"),
        ("grant.delivered", 2, "2026-01-01T01:00:00Z"),
    ]
    assert all((entry["identity"], entry["sink"]) == ("demo", "files:/a") for entry in logs)
