"""A keeper under a clock that tests move: what it fetches and exchanges, when, and what it makes of failures."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest
from structlog.testing import capture_logs

from agent.errors import NotReady, Rejected, Unavailable
from agent.gate import Gate
from agent.keeper import Habits, Keeper
from agent.margins import credential_margin
from agent.model import Grant, Key, Legacy, Secret
from agent.record import Profile
from agent.schedule import Policy, State
from agent.store import Store
from agent.tally import Tally
from tests.fakes import START, FakeClock, FakeCredential, FakeProvider, FakeSink, FakeSource, a_token, delivery_of, settle

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
CANARY = "canary-7f3a"


def seconds(moments):
    return [(moment - START).total_seconds() for moment in moments]


class Rig:
    """One identity, or several, with stand-ins around it."""

    def __init__(self, *, lifetime=HOUR, credential=None, dialects=(), timeout=10.0, host="", seed=1, **policy):
        self.clock = FakeClock()
        self.store = Store()
        self.tally = Tally()
        self.gate = Gate(16)
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
        self.habits = Habits(timeout=timeout)
        self.record = self.store.enrol(self.profile)
        self.tasks = []

    def keeper(self, profile=None, source=None, provider=None, habits=None):
        return Keeper(
            profile or self.profile,
            source or self.source,
            provider or self.provider,
            habits=habits or self.habits,
            store=self.store,
            gate=self.gate,
            clock=self.clock,
            random=self.random,
            tally=self.tally,
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
        return self.tally.refreshes["demo", result]


# when


async def test_a_token_is_fetched_at_once_and_then_between_75_and_80_percent_of_each_lifetime_for_days():
    rig = Rig()
    async with rig.running():
        await rig.clock.advance(10 * DAY)
    gaps = [(later - before) / HOUR for before, later in zip(rig.fetches, rig.fetches[1:], strict=False)]
    assert rig.fetches[0] == 0
    assert 300 <= len(gaps) <= 320
    assert all(0.75 <= gap <= 0.8 for gap in gaps)
    assert rig.count("success") == len(rig.fetches)
    assert rig.record.attempts == len(rig.fetches)


async def test_a_token_of_twenty_seconds_is_replaced_between_15_and_16_seconds():
    rig = Rig(lifetime=20)
    async with rig.running():
        await rig.clock.advance(200)
    gaps = [later - before for before, later in zip(rig.fetches, rig.fetches[1:], strict=False)]
    assert len(gaps) >= 12
    assert all(15.0 <= gap <= 16.0 for gap in gaps)


@pytest.mark.parametrize(("dialects", "first"), [(("container",), 40 * MINUTE), (("imds",), 35 * MINUTE), ((), 48 * MINUTE)])
async def test_a_served_session_of_an_hour_is_replaced_at_its_margin_and_an_unserved_one_at_48_minutes(dialects, first):
    rig = Rig(lifetime=DAY, credential=HOUR, dialects=dialects, jitter=0.0)
    async with rig.running():
        await rig.clock.advance(first - 1)
        assert rig.exchanges == [0]
        await rig.clock.advance(2)
        assert rig.exchanges == [0, first]


async def test_a_grant_too_short_for_its_margin_keeps_a_quarter_and_that_is_said_once():
    rig = Rig(lifetime=DAY, credential=15 * MINUTE, dialects=("container",), jitter=0.0)
    with capture_logs() as logs:
        async with rig.running():
            await rig.clock.advance(HOUR)
            rig.provider.lifetime = 14.9 * MINUTE  # no two grants are of quite the same length
            await rig.clock.advance(HOUR)
    assert rig.exchanges[:3] == [0, 11.25 * MINUTE, 22.5 * MINUTE]
    assert [entry["event"] for entry in logs].count("grant.short") == 1
    assert "want 1200 s left" in rig.record.note


async def test_a_longer_grant_takes_the_note_back():
    rig = Rig(lifetime=DAY, credential=15 * MINUTE, dialects=("container",))
    async with rig.running():
        assert rig.record.note
        rig.provider.lifetime = HOUR
        await rig.clock.advance(HOUR)
        assert not rig.record.note


async def test_a_valid_credential_is_not_renewed_because_the_token_aged():
    rig = Rig(lifetime=10 * MINUTE, credential=12 * HOUR, jitter=0.0)
    async with rig.running():
        held = rig.record.grant.credential
        await rig.clock.advance(9 * HOUR)
        assert len(rig.fetches) > 60
        assert rig.exchanges == [0]
        assert rig.record.grant.credential is held
        assert rig.record.grant.token.id != "t1"


async def test_an_exchange_uses_the_token_at_hand():
    rig = Rig(lifetime=12 * HOUR, credential=HOUR)
    async with rig.running():
        await rig.clock.advance(8 * HOUR)
    assert rig.fetches == [0]
    assert len(rig.exchanges) >= 10
    assert {token for token, _ in rig.provider.exchanged} == {"t1"}


@pytest.mark.parametrize(("lifetime", "fetched"), [(1000, False), (990, True)])
async def test_an_exchange_fetches_first_where_the_token_at_hand_has_less_than_sixty_seconds_left(lifetime, fetched):
    rig = Rig(lifetime=lifetime, credential=1175, at=0.8, jitter=0.0)
    rig.profile = Profile(**{**vars_of(rig.profile), "token_policy": Policy(at=0.99, jitter=0.0)})
    async with rig.running():  # the credential is due at 940 s, when a token of 1000 s has 60 s left
        await rig.clock.advance(941)
    assert rig.exchanges == [0, 940]
    assert rig.fetches == ([0, 940] if fetched else [0])


def vars_of(profile):
    return {name: getattr(profile, name) for name in profile.__dataclass_fields__}


async def test_a_token_that_lives_for_a_week_is_replaced_every_24_hours():
    rig = Rig(lifetime=7 * DAY)
    async with rig.running():
        await rig.clock.advance(3 * DAY + 1)
    assert rig.fetches == [0, DAY, 2 * DAY, 3 * DAY]


async def test_what_a_refresh_did_not_make_newer_is_asked_for_at_half_of_what_remains_and_never_within_30_s():
    rig = Rig(jitter=0.0)
    rig.source.same = a_token()
    async with rig.running():
        await rig.clock.advance(HOUR)
    assert rig.fetches[:5] == [0, 2880, 3240, 3420, 3510]
    assert min(later - before for before, later in zip(rig.fetches, rig.fetches[1:], strict=False)) >= 30
    assert rig.count("unchanged") == len(rig.fetches) - 1 - rig.count("rejected")
    assert rig.record.grant.generation == 1


async def test_a_renewal_makes_both_new_at_once():
    rig = Rig(credential=HOUR)
    async with rig.running():
        await rig.clock.advance(100)
        assert rig.store.renew("demo", rig.clock.now())
        await settle()
        assert rig.fetches == [0, 100]
        assert rig.exchanges == [0, 100]


async def test_a_renewal_that_fails_is_tried_again_until_it_succeeds():
    rig = Rig(credential=HOUR)
    async with rig.running():
        await rig.clock.advance(100)
        rig.source.script.fault = Unavailable("down")
        rig.store.renew("demo", rig.clock.now())
        await rig.clock.advance(10)
        assert rig.count("unavailable") >= 3
        rig.source.script.fault = None
        await rig.clock.advance(60)
        assert rig.record.failure is None
        assert rig.record.grant.token.issued_at > START + timedelta(seconds=100)
        assert len(rig.exchanges) == 2


async def test_a_change_at_the_source_fetches_the_token_and_leaves_the_credential():
    rig = Rig(credential=HOUR)
    keeper = rig.keeper()
    async with rig.running(keeper.keep(), keeper.watch()):
        await rig.clock.advance(100)
        rig.source.change.set()
        await settle()
        assert rig.fetches == [0, 100]
        assert rig.exchanges == [0]


async def test_a_changed_file_that_could_not_be_read_yet_is_read_again_soon():
    rig = Rig()
    keeper = rig.keeper()
    async with rig.running(keeper.keep(), keeper.watch()):
        await rig.clock.advance(100)
        rig.source.script.fault = NotReady("empty")
        rig.source.change.set()
        await settle()
        rig.source.script.fault = None
        await rig.clock.advance(2)
        assert len(rig.fetches) == 3
        assert rig.record.grant.generation == 2


@pytest.mark.parametrize("fault", [KeyError(CANARY), Unavailable("no inotify")])
async def test_a_watch_that_breaks_is_begun_again_and_the_clock_still_counts(fault):
    rig = Rig()
    keeper = rig.keeper()
    rig.source.change_fault = fault
    with capture_logs() as logs:
        async with rig.running(keeper.keep(), keeper.watch()):
            await rig.clock.advance(HOUR)
            assert len(rig.fetches) == 2
            rig.source.change_fault = None
            await rig.clock.advance(61)
            rig.source.change.set()
            await settle()
            assert len(rig.fetches) == 3
    assert CANARY not in str(logs)


# clocks that are wrong


async def test_after_a_sleep_of_the_machine_a_due_refresh_starts_within_a_minute_of_waking():
    rig = Rig()
    async with rig.running():
        await rig.clock.advance(10)
        rig.clock.jump(5 * HOUR)
        woke = (rig.clock.now() - START).total_seconds()
        await rig.clock.advance(60)
        assert rig.fetches[1] - woke <= 60


async def test_a_clock_set_back_past_the_issue_makes_all_of_it_due_within_a_minute_and_once():
    rig = Rig(credential=HOUR)
    async with rig.running():
        await rig.clock.advance(10)
        rig.clock.jump(-DAY)
        await rig.clock.advance(60)
        assert len(rig.fetches) == len(rig.exchanges) == 2
        assert rig.record.grant.token.issued_at < START
        await rig.clock.advance(30 * MINUTE)
        assert len(rig.fetches) == len(rig.exchanges) == 2


async def test_a_clock_set_back_past_the_issue_of_the_newer_of_the_two_is_noticed_too():
    rig = Rig(lifetime=12 * HOUR, credential=HOUR, jitter=0.0)
    async with rig.running():
        await rig.clock.advance(48 * MINUTE + 10)
        assert rig.exchanges == [0, 2880]
        rig.clock.jump(-5 * MINUTE)  # the token is older than that, the credential is not
        await rig.clock.advance(60)
        assert len(rig.exchanges) == 3
        assert len(rig.fetches) == 1


@pytest.mark.parametrize("fault", [None, Unavailable("down")])
async def test_a_clock_set_back_makes_no_hot_loop_where_nothing_newer_is_to_be_had(fault):
    rig = Rig(credential=HOUR)
    rig.source.same = a_token()
    rig.provider.same = FakeCredential(START, START + timedelta(hours=1))
    async with rig.running():
        await rig.clock.advance(10)
        rig.clock.jump(-DAY)
        rig.source.script.fault = fault
        await rig.clock.advance(10 * MINUTE)
        assert 2 <= len(rig.fetches) <= (30 if fault else 4)


async def test_a_clock_set_back_during_a_back_off_does_not_stretch_it():
    rig = Rig()
    rig.source.script.fault = Unavailable("down")
    async with rig.running():
        await rig.clock.advance(300)
        tries = len(rig.fetches)
        rig.clock.jump(-DAY)
        rig.source.script.fault = None
        await rig.clock.advance(61)
        assert len(rig.fetches) == tries + 1
        assert rig.record.grant


@pytest.mark.parametrize("ahead", [30, 300, 3000])
async def test_a_giver_whose_clock_is_ahead_of_ours_is_not_asked_more_often(ahead):
    rig = Rig()
    rig.source.age = -ahead
    async with rig.running():
        await rig.clock.advance(6 * HOUR)
    assert len(rig.fetches) <= 9


@pytest.mark.parametrize("behind", [0.8, 0.9, 0.99])
async def test_a_giver_whose_clock_is_behind_ours_is_asked_with_a_pause_between(behind):
    rig = Rig()
    rig.source.age = behind * HOUR
    async with rig.running():
        await rig.clock.advance(10 * MINUTE)
        assert rig.record.grant.token.expires_at > rig.clock.now()
    assert 10 * MINUTE / 30 <= len(rig.fetches) <= 10 * MINUTE / 5


async def test_what_has_expired_when_it_comes_is_refused_and_does_not_replace_what_works():
    rig = Rig(credential=HOUR)
    async with rig.running():
        rig.source.age, rig.provider.lifetime = 2 * HOUR, -5
        with capture_logs() as logs:
            await rig.clock.advance(55 * MINUTE)
        assert rig.record.failure.reaction == "rejected"
        assert "compare the clocks" in rig.record.failure.remedy
        assert rig.record.grant.token.id == "t1"
        assert [entry["log_level"] for entry in logs].count("error") <= 2, "each of the two is said once"
        rig.source.age = 0
        await rig.clock.advance(2 * MINUTE)
        assert rig.record.grant.token.id != "t1"
        assert rig.record.grant.credential.expires_at == START + timedelta(hours=1)
        assert len(rig.fetches) < 30


# failures


async def test_failures_are_tried_again_after_one_second_to_sixty_and_what_is_held_stays_to_its_end():
    rig = Rig(credential=HOUR, jitter=0.0)
    async with rig.running():
        held = rig.record.grant
        rig.source.script.fault = rig.provider.script.fault = Unavailable("down")
        await rig.clock.advance(HOUR - 1)
        assert rig.record.grant is held
        assert rig.store.usable(Key("demo"), rig.clock.now()) is held
        assert rig.store.state("demo", rig.clock.now()) == State.STALE
        await rig.clock.advance(1)
        assert rig.store.usable(Key("demo"), rig.clock.now()) is None
        assert rig.store.newest(Key("demo")) is held
        assert rig.store.state("demo", rig.clock.now()) == State.EXPIRED
        gaps = [later - before for before, later in zip(rig.fetches[1:], rig.fetches[2:], strict=False)]
        assert 1 <= gaps[0] <= 2
        assert all(1 <= gap <= 60 for gap in gaps)
        assert max(gaps[:10]) > 30
        assert max(gaps[-4:]) < 5, "sooner as expiry nears"
        assert rig.record.failure.count == len(rig.fetches) - 1
        rig.source.script.fault = rig.provider.script.fault = None
        await rig.clock.advance(60)
        assert rig.record.failure is None
        assert rig.store.state("demo", rig.clock.now()) == State.FRESH


async def test_retry_after_is_honoured():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = Unavailable("throttled", retry_after=200)
    async with rig.running():
        await rig.clock.advance(199)
        assert rig.exchanges == [0]
        await rig.clock.advance(2)
        assert rig.exchanges == [0, 200]


@pytest.mark.parametrize(
    ("fault", "least", "most", "level"),
    [(NotReady("soon"), 6, 30, "info"), (Unavailable("down"), 5, 8, "warning"), (Rejected("no such role"), 2, 3, "error")],
)
async def test_what_passes_by_itself_is_tried_often_and_quietly_what_is_refused_slowly_and_loudly(fault, least, most, level):
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = fault
    with capture_logs() as logs:
        async with rig.running():
            await rig.clock.advance(MINUTE)
    assert least <= len(rig.exchanges) <= most
    said = [entry["log_level"] for entry in logs if entry["event"] == "refresh.failed"]
    assert said[0] == level
    assert set(said[1:]) <= {"debug"}, "said once"


async def test_a_recovery_is_said_once():
    rig = Rig()
    rig.source.script.fault = Unavailable("down")
    with capture_logs() as logs:
        async with rig.running():
            await rig.clock.advance(10)
            rig.source.script.fault = None
            await rig.clock.advance(HOUR)
    assert [entry["event"] for entry in logs].count("refresh.recovered") == 1


async def test_where_the_exchange_fails_the_new_token_still_goes_on_its_way():
    rig = Rig(credential=HOUR, jitter=0.0)
    async with rig.running():
        before = rig.record.grant
        rig.provider.script.fault = Unavailable("down")
        await rig.clock.advance(50 * MINUTE)
        assert rig.record.grant.token.id == "t2"
        assert rig.record.grant.credential is before.credential
        assert rig.fetches == [0, 2880], "the token is there: only the exchange is tried again"
        assert len(rig.exchanges) > 4


async def test_where_the_exchange_hangs_the_new_token_still_goes_on_its_way():
    rig = Rig(credential=HOUR, jitter=0.0, timeout=0.05)
    async with rig.running():
        rig.provider.script.hanging = True
        await rig.clock.advance(48 * MINUTE)
        await asyncio.sleep(0.1)
        await settle()
        assert rig.record.grant.token.id == "t2"
        assert rig.record.failure.reaction == "unavailable"


async def test_while_the_first_exchange_fails_the_token_at_hand_is_not_fetched_again():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = Unavailable("down")
    async with rig.running():
        await rig.clock.advance(30 * MINUTE)
    assert rig.fetches == [0]
    assert len(rig.exchanges) > 30


async def test_a_token_that_an_exchange_was_refused_with_is_not_tried_again():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = Rejected("unknown key")
    async with rig.running():
        await rig.clock.advance(5 * MINUTE)
    tokens = [token for token, _ in rig.provider.exchanged]
    assert len(tokens) == len(set(tokens)) > 3


async def test_a_pod_without_a_token_exchanges_nothing_for_its_credential():
    rig = Rig(credential=HOUR)

    async def fetch(audiences):
        return None

    rig.source.fetch = fetch
    async with rig.running():
        await rig.clock.advance(HOUR)
        assert rig.record.grant.token is None
        assert len(rig.exchanges) == 2


async def test_a_bug_is_kept_to_its_identity_and_nothing_it_said_is_repeated():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = KeyError(CANARY)
    with capture_logs() as logs:
        async with rig.running():
            await rig.clock.advance(5 * MINUTE)
    assert rig.record.failure.reaction == "defect"
    assert "KeyError" in rig.record.failure.message
    assert rig.count("defect") == len(rig.exchanges) <= 11
    assert CANARY not in f"{logs} {rig.record}"
    assert "fakes.py" in str(logs), "where it happened is said"


async def test_one_whose_source_hangs_and_one_whose_provider_breaks_leave_the_others_on_time():
    rig = Rig(credential=HOUR, jitter=0.0, timeout=0.05)
    loops = []
    others = {}
    for name in ("hangs", "breaks", "third"):
        profile = Profile(**{**vars_of(rig.profile), "name": name})
        source, provider = FakeSource(rig.clock), FakeProvider(rig.clock, lifetime=HOUR)
        source.script.hanging = name == "hangs"
        provider.script.fault = KeyError(CANARY) if name == "breaks" else None
        rig.store.enrol(profile)
        others[name] = source
        loops.append(rig.keeper(profile, source, provider).keep())
    async with rig.running(rig.keeper().keep(), *loops):
        for _ in range(2):
            await rig.clock.advance(50 * MINUTE)
            await asyncio.sleep(0.06)
        assert seconds(others["third"].script.calls) == rig.fetches == [0, 2880, 5760]
        assert rig.store.record(Key("hangs")).failure.reaction == "unavailable"
        assert "0.05 s" in rig.store.record(Key("hangs")).failure.message
        assert rig.store.record(Key("breaks")).failure.reaction == "defect"


async def test_five_hundred_hanging_identities_of_one_tenant_do_not_delay_anothers():
    rig = Rig(credential=HOUR, host="sts.example", timeout=30.0)
    rig.gate = Gate(16)
    hanging = FakeProvider(rig.clock, lifetime=HOUR, host="sts.example")
    hanging.script.hanging = True
    loops = []
    for number in range(500):
        profile = Profile(**{**vars_of(rig.profile), "name": f"a{number}"})
        rig.store.enrol(profile)
        loops.append(rig.keeper(profile, provider=hanging, habits=Habits(timeout=30.0, namespace="a")).keep())
    async with rig.running(*loops, rig.keeper(habits=Habits(timeout=30.0, namespace="b")).keep()):
        assert rig.record.grant
        assert len(hanging.script.calls) == 8, "half of the slots"


# variants


async def test_a_variant_gets_one_keeper_and_uses_the_token_at_hand():
    rig = Rig(lifetime=12 * HOUR, credential=HOUR)
    keeper = rig.keeper()
    async with rig.running(keeper.keep()):
        wants = [asyncio.ensure_future(rig.store.want(Key("demo", "vault"), rig.clock.now(), 1.0)) for _ in range(50)]
        await settle()
        assert rig.store.newcomers.qsize() == 1
        key = rig.store.newcomers.get_nowait()
        rig.tasks.append(asyncio.ensure_future(keeper.keep(key.variant)))
        grants = await asyncio.gather(*wants)
        assert {grant.credential.variant for grant in grants} == {"vault"}
        assert rig.fetches == [0]
        assert rig.provider.exchanged == [("t1", ""), ("t1", "vault")]


async def test_a_variant_nobody_asks_for_is_dropped_after_a_lifetime_and_one_in_use_is_kept():
    rig = Rig(lifetime=12 * HOUR, credential=HOUR, jitter=0.0)
    keeper = rig.keeper()
    used, unused = Key("demo", "used"), Key("demo", "unused")
    async with rig.running(keeper.keep()):
        for key in (used, unused):
            rig.store._welcome(key).used_at = rig.clock.now()
        rig.tasks += [asyncio.ensure_future(keeper.keep(key.variant)) for key in (used, unused)]
        for _ in range(8):
            await rig.clock.advance(15 * MINUTE)
            await rig.store.want(used, rig.clock.now(), 1.0)
        assert rig.store.record(used)
        assert rig.store.record(unused) is None
        assert [variant for _, variant in rig.provider.exchanged].count("unused") == 2
        assert rig.tasks[2].done()


async def test_a_variant_that_could_never_be_had_does_not_keep_its_place():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = Rejected("no such resource")
    rig.store._welcome(Key("demo", "bogus")).used_at = rig.clock.now()
    async with rig.running(rig.keeper().keep("bogus")):
        await rig.clock.advance(4 * MINUTE)
        assert rig.store.record(Key("demo", "bogus"))
        await rig.clock.advance(3 * MINUTE)
        assert rig.store.record(Key("demo", "bogus")) is None


async def test_a_token_fetched_for_a_variant_reaches_the_identitys_own_grant_too():
    rig = Rig(lifetime=10 * MINUTE, credential=12 * HOUR, jitter=0.0)
    rig.profile = Profile(**{**vars_of(rig.profile), "token_policy": Policy(at=0.99, jitter=0.0)})
    keeper = rig.keeper()
    async with rig.running(keeper.keep()):
        await rig.clock.advance(9.5 * MINUTE)
        rig.store._welcome(Key("demo", "vault")).used_at = rig.clock.now()
        rig.tasks.append(asyncio.ensure_future(keeper.keep("vault")))
        await settle()
        assert rig.fetches == [0, 9.5 * MINUTE]
        assert rig.record.grant.token.id == "t2"
        assert rig.record.due == rig.clock.now() + timedelta(seconds=0.99 * 10 * MINUTE)
        await rig.clock.advance(5 * MINUTE)
        assert rig.fetches == [0, 9.5 * MINUTE], "its own keeper has taken note"


async def test_a_failure_that_a_variant_made_good_is_one_no_longer():
    rig = Rig(lifetime=10 * MINUTE, credential=12 * HOUR, jitter=0.0, at=0.95)
    keeper = rig.keeper()
    async with rig.running(keeper.keep()):
        rig.source.script.fault = Rejected("no such account")
        await rig.clock.advance(0.95 * 10 * MINUTE)
        assert rig.record.failure
        rig.source.script.fault = None
        rig.store._welcome(Key("demo", "vault")).used_at = rig.clock.now()
        rig.tasks.append(asyncio.ensure_future(keeper.keep("vault")))
        await settle()
        assert rig.fetches == [0, 570, 570]
        await rig.clock.advance(60)
        assert rig.record.failure is None
        assert rig.fetches == [0, 570, 570]
        assert rig.record.due == START + timedelta(seconds=570 + 570)


async def test_readers_and_other_loops_do_not_break_a_back_off():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = Unavailable("throttled", retry_after=300)
    async with rig.running():
        for _ in range(20):
            with pytest.raises(NotReady):
                await rig.store.want(Key("demo"), rig.clock.now(), 0.001)
            rig.record.asked.add("wanted")
            rig.record.wake.set()
            await rig.clock.advance(10)
        assert rig.exchanges == [0]


# what an earlier process left


def left_behind(*, age=0.0, token_lifetime=HOUR, credential_lifetime=HOUR):
    token = a_token(START - timedelta(seconds=age), token_lifetime)
    credential = FakeCredential(START - timedelta(seconds=age), START + timedelta(seconds=credential_lifetime - age))
    delivery = delivery_of(Grant(key=Key("demo"), digest="d1", token=token, credential=credential), 0)
    return Legacy(token=Secret(jwt(token)), files={}, delivery=delivery)


def jwt(token):
    from base64 import urlsafe_b64encode
    from json import dumps

    claims = {"iat": token.issued_at.timestamp(), "exp": token.expires_at.timestamp(), "jti": token.id}
    return ".".join(urlsafe_b64encode(dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)) + ".c2ln"


async def test_what_an_earlier_process_left_is_taken_over_and_nobody_is_asked_until_it_is_due():
    rig = Rig(credential=HOUR, jitter=0.0)
    sink = FakeSink(rig.clock)
    sink.legacy = left_behind(age=10 * MINUTE)
    async with rig.running(rig.keeper().keep(sinks=[sink])):
        assert rig.record.grant.token.id == "t0"
        assert rig.record.landings[sink.name].generation == rig.record.grant.generation
        await rig.clock.advance(38 * MINUTE - 1)
        assert not rig.fetches
        assert not rig.exchanges
        await rig.clock.advance(2)
        assert rig.fetches == rig.exchanges == [38 * MINUTE]


async def test_what_is_due_when_it_is_taken_over_is_replaced_at_once():
    rig = Rig(credential=HOUR)
    sink = FakeSink(rig.clock)
    sink.legacy = left_behind(age=50 * MINUTE)
    async with rig.running(rig.keeper().keep(sinks=[sink])):
        assert rig.fetches == rig.exchanges == [0]


@pytest.mark.parametrize("how", ["token expired", "credential expired", "nothing", "rejected", "bug", "garbage", "hangs"])
async def test_what_cannot_be_taken_over_is_fetched_anew(how, monkeypatch):
    rig = Rig(credential=HOUR)
    sink, second = FakeSink(rig.clock, "files:/a"), FakeSink(rig.clock, "files:/b")
    token_lifetime, credential_lifetime = {"token expired": (HOUR, 9 * HOUR), "credential expired": (9 * HOUR, HOUR)}.get(
        how, (9 * HOUR,) * 2
    )
    legacy = left_behind(age=HOUR, token_lifetime=token_lifetime, credential_lifetime=credential_lifetime)
    sink.legacy = None if how == "nothing" else legacy
    if how == "garbage":
        sink.legacy = Legacy(token=Secret(CANARY), files={}, delivery=legacy.delivery)
    sink.adopting.fault = {"rejected": Rejected("foreign"), "bug": KeyError(CANARY)}.get(how)
    sink.adopting.hanging = how == "hangs"
    monkeypatch.setattr("agent.adoption.PATIENCE", 0.02)
    with capture_logs() as logs:
        async with rig.running(rig.keeper().keep(sinks=[sink, second])):
            await asyncio.sleep(0.05)
            assert len(second.adopting.calls) == 1, "the next sink is asked"
            assert rig.fetches == [0]
            assert rig.record.grant.generation == 1
    assert CANARY not in str(logs)
