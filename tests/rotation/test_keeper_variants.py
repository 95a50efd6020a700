"""Run-time variants: a keeper each, one token for all."""

import asyncio
from datetime import timedelta

import pytest

from agent.errors import NotReady, Rejected, Unavailable
from agent.model import Key
from agent.record import Profile
from agent.schedule import Policy
from tests.fakes import START, settle
from tests.rig import HOUR, MINUTE, Rig, vars_of


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


async def test_an_unused_variant_is_dropped_after_a_lifetime_and_a_used_one_kept():
    rig = Rig(lifetime=12 * HOUR, credential=HOUR, jitter=0.0)
    keeper = rig.keeper()
    used, unused = Key("demo", "used"), Key("demo", "unused")
    async with rig.running(keeper.keep()):
        for key in (used, unused):
            rig.store.open_variant(key).used_at = rig.clock.now()
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
    rig.store.open_variant(Key("demo", "bogus")).used_at = rig.clock.now()
    async with rig.running(rig.keeper().keep("bogus")):
        await rig.clock.advance(4 * MINUTE)
        assert rig.store.record(Key("demo", "bogus"))
        await rig.clock.advance(3 * MINUTE)
        assert rig.store.record(Key("demo", "bogus")) is None


async def test_a_variant_whose_credential_has_no_expiry_is_a_defect_and_asked_for_slowly():
    rig = Rig()  # whose credentials have none
    rig.store.open_variant(Key("demo", "timeless")).used_at = rig.clock.now()
    async with rig.running(rig.keeper().keep("timeless")):
        await rig.clock.advance(2 * MINUTE)
        record = rig.store.record(Key("demo", "timeless"))
        assert (record.grant, record.failure.reaction) == (None, "defect")
        assert 1 < len(rig.exchanges) < 10
        assert rig.count("defect") == len(rig.exchanges)


async def test_a_token_fetched_for_a_variant_reaches_the_identitys_own_grant_too():
    rig = Rig(lifetime=10 * MINUTE, credential=12 * HOUR, jitter=0.0)
    rig.profile = Profile(**{**vars_of(rig.profile), "token_policy": Policy(at=0.99, jitter=0.0)})
    keeper = rig.keeper()
    async with rig.running(keeper.keep()):
        await rig.clock.advance(9.5 * MINUTE)
        rig.store.open_variant(Key("demo", "vault")).used_at = rig.clock.now()
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
        rig.store.open_variant(Key("demo", "vault")).used_at = rig.clock.now()
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


async def test_a_configured_variant_is_kept_fresh_though_nobody_asks_for_it():
    rig = Rig(lifetime=12 * HOUR, credential=HOUR, jitter=0.0)
    rig.profile = Profile(**{**vars_of(rig.profile), "variants": ("vault",)})
    rig.store.enrol(rig.profile)
    keeper = rig.keeper()
    async with rig.running(keeper.keep(), keeper.keep("vault")):
        await rig.clock.advance(12 * HOUR)
        assert rig.store.usable(Key("demo", "vault"), rig.clock.now())
        assert [variant for _, variant in rig.provider.exchanged].count("vault") == 16


async def test_keeper_of_a_variant_that_gave_way_ends():
    rig = Rig(lifetime=12 * HOUR, credential=HOUR)
    keeper, key = rig.keeper(), Key("demo", "vault")
    rig.store.open_variant(key).used_at = rig.clock.now()
    async with rig.running(keeper.keep("vault")):
        rig.store.drop(key)
        await settle()
        assert rig.tasks[0].done()
        assert len(rig.exchanges) == 1


async def test_variant_that_gives_way_during_its_exchange_is_no_defect():
    rig = Rig(lifetime=12 * HOUR, credential=HOUR)
    key = Key("demo", "vault")
    rig.store.open_variant(key).used_at = rig.clock.now()
    rig.provider.script.delay = 5.0
    async with rig.running(rig.keeper().keep("vault")):
        rig.store.drop(key)
        await rig.clock.advance(6.0)
        assert rig.tasks[0].done()
    assert rig.count("defect") == 0
    assert rig.store.record(key) is None
