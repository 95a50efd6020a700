"""Waiting against the wall clock."""

import asyncio
from datetime import timedelta

from agent.clock import STEP, WallClock, wait_until
from tests.fakes import START, FakeClock, settle


def at(seconds):
    return START + timedelta(seconds=seconds)


async def begin(clock, deadline, **more):
    event = asyncio.Event()
    waiting = asyncio.ensure_future(wait_until(clock, deadline, event, **more))
    await settle()
    return event, waiting


async def test_a_wait_ends_at_its_deadline():
    clock = FakeClock()
    _, waiting = await begin(clock, at(1000))
    await clock.advance(999)
    assert not waiting.done()
    await clock.advance(1)
    assert waiting.result() is False


async def test_a_wait_ends_at_once_when_the_event_is_set():
    event, waiting = await begin(FakeClock(), at(1000))
    event.set()
    await settle()
    assert waiting.result() is True


async def test_a_deadline_that_has_passed_is_not_waited_for_and_the_event_still_counts():
    event = asyncio.Event()
    assert await wait_until(FakeClock(), at(-1), event) is False
    event.set()
    assert await wait_until(FakeClock(), at(-1), event) is True


async def test_after_a_sleep_of_the_machine_a_wait_ends_within_one_step_of_waking():
    clock = FakeClock()
    _, waiting = await begin(clock, at(10000))
    await clock.advance(10)
    clock.jump(20000)
    await clock.advance(STEP)
    assert waiting.done()


async def test_a_clock_set_back_past_where_it_began_ends_the_wait_within_one_step():
    clock = FakeClock()
    _, waiting = await begin(clock, at(10000), began=at(0))
    _, steady = await begin(clock, at(10000), began=at(-200))
    await clock.advance(10)
    clock.jump(-100)
    await clock.advance(STEP)
    assert waiting.done()
    assert not steady.done()
    steady.cancel()
    await settle()


async def test_the_machines_own_clock_waits_for_real():
    clock, event = WallClock(), asyncio.Event()
    began = asyncio.get_running_loop().time()
    assert clock.now().utcoffset() == timedelta(0)
    assert await clock.wait(event, 0.03) is False
    await clock.sleep(0.01)
    assert 0.035 < asyncio.get_running_loop().time() - began < 1
    asyncio.get_running_loop().call_later(0.01, event.set)
    assert await clock.wait(event, 5) is True
    assert await clock.wait(event, -1) is True
    assert await clock.wait(asyncio.Event(), -1) is False
