"""When a keeper acts: at its own time, for a change, for a person."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from agent.errors import NotReady, Unavailable
from agent.record import Profile
from agent.schedule import Policy
from tests.fakes import START, a_token, settle
from tests.rig import CANARY, DAY, HOUR, MINUTE, Rig, vars_of


async def test_a_token_is_fetched_between_75_and_80_percent_of_each_lifetime():
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
async def test_a_served_session_is_replaced_at_its_margin_others_at_80_percent(dialects, first):
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
async def test_an_exchange_fetches_first_if_the_token_has_under_sixty_seconds(lifetime, fetched):
    rig = Rig(lifetime=lifetime, credential=1175, at=0.8, jitter=0.0)
    rig.profile = Profile(**{**vars_of(rig.profile), "token_policy": Policy(at=0.99, jitter=0.0)})
    async with rig.running():  # the credential is due at 940 s, when a token of 1000 s has 60 s left
        await rig.clock.advance(941)
    assert rig.exchanges == [0, 940]
    assert rig.fetches == ([0, 940] if fetched else [0])


async def test_a_token_that_lives_for_a_week_is_replaced_every_24_hours():
    rig = Rig(lifetime=7 * DAY)
    async with rig.running():
        await rig.clock.advance(3 * DAY + 1)
    assert rig.fetches == [0, DAY, 2 * DAY, 3 * DAY]


async def test_an_unchanged_refresh_is_repeated_at_half_of_the_remaining_life():
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


@pytest.mark.parametrize("sinks", [(), ("files:/a",)])
async def test_who_has_no_sink_to_say_it_is_told_of_each_renewal_and_until_when_it_is_good(sinks):
    rig = Rig(credential=HOUR / 2, jitter=0.0)
    profile = Profile(**(vars_of(rig.profile) | {"sinks": sinks}))
    with capture_logs() as logs:
        async with rig.running(rig.keeper(profile).keep(), rig.keeper(profile).keep("scope")):
            await rig.clock.advance(0.45 * HOUR)
    said = [(entry["event"], entry["identity"], entry["until"]) for entry in logs if entry["event"] == "grant.renewed"]
    assert said == ([] if sinks else [("grant.renewed", "demo", "2026-01-01T00:30:00Z"), ("grant.renewed", "demo", "2026-01-01T00:54:00Z")])
