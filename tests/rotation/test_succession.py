"""An identity's credential ends when its tokens become another principal's, or its ServiceAccount is gone."""

from dataclasses import replace
from datetime import timedelta

import pytest

from agent.errors import Ended, Rejected, Unavailable
from agent.model import Key
from agent.record import Observation
from agent.rotation.courier import Courier
from tests.fakes import START, FakeClock, FakeSink, a_token, settle
from tests.rig import HOUR, MINUTE, Rig, vars_of
from tests.rotation.test_adoption import left_behind

ALICE = {"issuer": "https://issuer.example", "subject": "alice", "account_uid": "u1"}


def token(clock, name="t", **principal):
    return replace(a_token(clock.now(), HOUR, name), **(ALICE | principal))


class Sink(FakeSink):
    """Notes in which order it is written and emptied."""

    def __init__(self, clock):
        super().__init__(clock)
        self.order = []

    async def write(self, grant):
        await super().write(grant)
        self.order.append(grant.token.subject)

    async def withdraw(self):
        await self.writing.play()
        await super().withdraw()
        self.order.append("withdrawn")

    async def withdraw_all(self):
        raise AssertionError("the authorization is withdrawn too")


class Scene(Rig):
    """An identity whose source gives alice's tokens, and its sink."""

    def __init__(self, **more):
        super().__init__(credential=HOUR, jitter=0.0, **more)
        self.sink = Sink(self.clock)
        self.profile = type(self.profile)(**{**vars_of(self.profile), "sinks": (self.sink.name,)})
        self.record = self.store.enrol(self.profile)
        self.source.same = token(self.clock)

    def loops(self, *variants, **changes):
        self.profile = type(self.profile)(**{**vars_of(self.profile), **changes})
        self.record = self.store.enrol(self.profile)
        keeper = self.keeper()
        courier = Courier("demo", self.sink, store=self.store, clock=self.clock, random=self.random, counters=self.counters)
        return keeper.keep(sinks=[self.sink]), courier.carry(), keeper.watch(), *(keeper.keep(variant) for variant in variants)

    async def becomes(self, **principal):
        self.source.same = token(self.clock, "new", **principal)
        self.source.change.set()
        await settle()

    @property
    def held(self):
        grant = self.store.usable(Key("demo"), self.clock.now())
        return grant and grant.token.subject


@pytest.mark.parametrize("what", ["subject", "issuer", "account_uid"])
async def test_a_token_of_another_principal_is_exchanged_at_once(what):
    scene = Scene()
    async with scene.running(*scene.loops()):
        assert scene.provider.exchanged == [("t", "")]
        await scene.becomes(**{what: "bob"})
        assert scene.provider.exchanged == [("t", ""), ("new", "")]
        assert getattr(scene.store.newest(Key("demo")).token, what) == "bob"
        assert scene.sink.order[1] == "withdrawn", "before the next one is written"
        assert len(scene.sink.order) == 3


async def test_while_the_other_principals_exchange_hangs_nothing_is_served():
    scene = Scene()
    async with scene.running(*scene.loops()):
        scene.provider.script.hanging = True
        await scene.becomes(subject="bob")
        assert scene.held is None
        assert scene.sink.order == ["alice", "withdrawn"]
        assert scene.sink.held is None


@pytest.mark.parametrize("fault", [Rejected("no"), Unavailable("away")])
async def test_a_failed_exchange_withdraws_the_former_principal_too(fault):
    scene = Scene()
    async with scene.running(*scene.loops()):
        scene.provider.script.fault = fault
        await scene.becomes(subject="bob")
        assert (scene.held, scene.sink.order) == (None, ["alice", "withdrawn"])
        scene.provider.script.fault = None
        await scene.clock.advance(61)
        assert (scene.held, scene.sink.order) == ("bob", ["alice", "withdrawn", "bob"])


async def test_a_new_token_of_the_same_principal_withdraws_nothing():
    scene = Scene()
    async with scene.running(*scene.loops()):
        scene.source.same = None
        scene.source.same = replace(token(scene.clock, "later"), expires_at=scene.clock.now() + timedelta(seconds=2 * HOUR))
        scene.source.change.set()
        await settle()
        assert scene.sink.order == ["alice", "alice"]
        assert scene.provider.exchanged == [("t", "")]


async def test_variants_of_the_former_principal_end_and_are_had_anew():
    scene = Scene()
    loops = scene.loops("scope", variants=("scope",))
    async with scene.running(*loops):
        variant = scene.store.record(Key("demo", "scope"))
        assert variant.grant.token.subject == "alice"
        await scene.becomes(subject="bob")
        assert variant.grant.token.subject == "bob"
        assert sorted(scene.provider.exchanged[2:]) == [("new", ""), ("new", "scope")]


async def test_an_exchange_under_way_grants_nothing_to_the_former_principal():
    """Its own loop exchanges alice's token while the variant's loop reads bob's."""
    scene = Scene()
    scene.provider.delay = 5.0
    loops = scene.loops("scope", variants=("scope",))
    async with scene.running(*loops):
        scene.source.same = token(scene.clock, "new", subject="bob")
        scene.store._ask(scene.store.record(Key("demo", "scope")), "renew")
        await scene.clock.advance(4)
        held = []
        for _ in range(80):
            await scene.clock.advance(1)
            held += [grant.token.subject for key in ("", "scope") if (grant := scene.store.newest(Key("demo", key)))]
        assert {grant.token.subject for grant in scene.sink.grants} <= {"alice", "bob"}
        assert held == sorted(held), "alice's, and then bob's"
        assert scene.held == "bob"
        for grant in scene.sink.grants:
            assert grant.credential.document()["variant"] == ""


async def test_what_earlier_settings_granted_stays_until_the_new_is_there():
    scene = Scene()
    async with scene.running(*scene.loops()):
        pass
    scene.provider.script.hanging = True
    scene.source.same = token(scene.clock, "new", subject="bob")
    async with scene.running(*scene.loops(digest="d2")):
        assert scene.held == "alice", "the operator chose another principal"
        assert scene.record.endings == 0


async def test_a_deleted_serviceaccount_ends_what_was_granted_and_a_new_one_is_delivered():
    scene = Scene()
    async with scene.running(*scene.loops()):
        scene.source.script.fault = Ended("demo: there is no ServiceAccount", remedy="create it")
        scene.store.renew("demo", scene.clock.now())
        await settle()
        assert (scene.held, scene.sink.order) == (None, ["alice", "withdrawn"])
        assert scene.record.failure.reaction == "rejected"
        await scene.clock.advance(10 * MINUTE)
        assert len(scene.provider.exchanged) == 1, "the token at hand is not exchanged again"
        assert len(scene.fetches) < 25, "a slow retry"
        scene.source.script.fault = None
        scene.source.same = token(scene.clock, "new", account_uid="u2")
        await scene.clock.advance(61)
        assert (scene.held, scene.sink.order) == ("alice", ["alice", "withdrawn", "alice"])
        assert scene.store.newest(Key("demo")).token.account_uid == "u2"


async def test_a_sink_that_cannot_be_emptied_is_not_written_for_the_next_principal():
    scene = Scene()
    async with scene.running(*scene.loops()):
        scene.sink.writing.fault = Unavailable("disk")
        await scene.becomes(subject="bob")
        assert scene.sink.order == ["alice"]
        assert scene.record.sink_statuses[scene.sink.name].failure.message == "disk"
        scene.sink.writing.fault = None
        await scene.clock.advance(15)
        assert scene.sink.order == ["alice", "withdrawn", "bob"]


@pytest.mark.parametrize(
    ("watched", "fetches"), [(True, 1), (False, 2), (None, 1)], ids=["watched", "not watched", "not of a ServiceAccount"]
)
async def test_an_unwatched_serviceaccount_is_confirmed_by_a_token_before_each_exchange(watched, fetches):
    scene = Scene()
    scene.provider.lifetime = 20 * MINUTE
    scene.source.same = token(scene.clock)
    scene.record.account = None if watched is None else Observation(exists=True, watched=watched)
    async with scene.running(*scene.loops()):
        await scene.clock.advance(16 * MINUTE + 1)
        assert len(scene.exchanges) == 2
        assert len(scene.fetches) == fetches


class Denied(Scene):
    """A followed identity, last seen at the start, whose watch is refused or fails."""

    def __init__(self, error):
        super().__init__()
        self.error = error
        self.record.account = Observation(exists=True, seen_at=START, error=error)
        self.provider.lifetime = 20 * MINUTE
        self.followed = {"follows": True, "account_uid": "u1"}


async def test_without_the_right_to_watch_a_principal_is_renewed_for_an_hour_only():
    scene = Denied(Rejected("demo: the agent may not watch", remedy="bind the Role"))
    scene.source.same = replace(token(scene.clock), expires_at=START + timedelta(days=1))
    async with scene.running(*scene.loops(**scene.followed)):
        await scene.clock.advance(59 * MINUTE)
        renewed = len(scene.exchanges)
        assert renewed >= 3
        end = scene.store.newest(Key("demo")).credential.expires_at
        await scene.clock.advance((end - scene.clock.now()).total_seconds() - 1)
        assert scene.held == "alice", "what is valid is served until it ends"
        assert len(scene.exchanges) == renewed
        assert scene.record.failure.message.startswith(
            "demo: its ServiceAccount cannot be seen since 2026-01-01T00:00:00Z, so its credential"
        )
        assert scene.record.failure.remedy == "bind the Role"
        await scene.clock.advance(2)
        assert scene.held is None
        scene.record.account.watched, scene.record.account.error = True, None
        await scene.clock.advance(61)
        assert scene.held == "alice"


async def test_an_api_server_that_cannot_be_reached_ends_no_renewal():
    scene = Denied(Unavailable("demo: away"))
    scene.source.same = replace(token(scene.clock), expires_at=START + timedelta(days=1))
    async with scene.running(*scene.loops(**scene.followed)):
        for _ in range(300):
            await scene.clock.advance(60)
            assert scene.held == "alice"


async def test_a_recreated_serviceaccount_that_cannot_be_seen_gets_nothing():
    scene = Denied(Rejected("demo: the agent may not watch"))
    async with scene.running(*scene.loops(**scene.followed)):
        await scene.becomes(account_uid="u2")
        assert (scene.held, scene.sink.order) == (None, ["alice", "withdrawn"])
        assert "created anew" in scene.record.failure.message
        assert len(scene.exchanges) == 1
        await scene.clock.advance(5 * MINUTE)
        assert len(scene.exchanges) == 1


@pytest.mark.parametrize(("seen", "adopted"), [("u1", True), ("u2", False), ("", True)])
async def test_a_generation_of_another_uid_is_withdrawn_and_not_adopted(seen, adopted, monkeypatch):
    scene = Scene()
    scene.sink.prior = left_behind()
    scene.sink.held = scene.sink.prior.delivery
    monkeypatch.setattr("agent.rotation.adoption.read_token", lambda text, **more: token(scene.clock, "left"))
    scene.source.script.hanging = True
    async with scene.running(*scene.loops(account_uid=seen)):
        assert scene.held == ("alice" if adopted else None)
        assert scene.sink.order == ([] if adopted else ["withdrawn"])


def test_a_note_of_an_unseen_serviceaccount_says_since_when():
    clock = FakeClock()
    account = Observation(exists=True, watched=True, seen_at=clock.now())
    assert (account.note(), account.last_seen(START + timedelta(hours=1))) == ("", START + timedelta(hours=1))
    account.watched, account.error = False, Rejected("may not watch")
    assert account.note() == "its ServiceAccount cannot be seen since 2026-01-01T00:00:00Z: may not watch; what was seen last holds"
    assert account.last_seen(START + timedelta(hours=1)) == START
    account.exists = False
    assert account.last_seen(START) is None
