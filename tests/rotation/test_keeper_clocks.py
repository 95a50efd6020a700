"""Clocks that are wrong: ours that jumps or is set back, and the giver's."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from agent.errors import Unavailable
from tests.fakes import START, FakeCredential, a_token
from tests.rig import DAY, HOUR, MINUTE, Rig


async def test_after_a_sleep_of_the_machine_a_due_refresh_starts_within_a_minute_of_waking():
    rig = Rig()
    async with rig.running():
        await rig.clock.advance(10)
        rig.clock.jump(5 * HOUR)
        woke = (rig.clock.now() - START).total_seconds()
        await rig.clock.advance(60)
        assert rig.fetches[1] - woke <= 60


async def test_a_clock_set_back_makes_everything_due_once_within_a_minute():
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
