"""Slots per host, shared between namespaces."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from agent.rotation.limiter import FairLimiter
from tests.fakes import settle


class Crowd:
    """Tasks that each hold a slot until they are let go."""

    def __init__(self, limiter):
        self.limiter = limiter
        self.inside = []
        self.doors = {}

    def enter(self, name, namespace, host="sts"):
        async def stay():
            async with self.limiter.slot(host, namespace):
                self.inside.append(name)
                try:
                    await door.wait()
                finally:
                    self.inside.remove(name)

        door = asyncio.Event()
        task = asyncio.ensure_future(stay())
        self.doors[name] = (door, task)
        return task

    async def leave(self, name):
        door, task = self.doors.pop(name)
        door.set()
        await task
        await settle()

    async def close(self):
        for _, task in self.doors.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self.doors.values()), return_exceptions=True)


@pytest.fixture
async def crowd():
    made = []

    def build(slots):
        made.append(Crowd(FairLimiter(slots)))
        return made[-1]

    yield build
    for one in made:
        await one.close()


async def test_a_namespace_takes_at_most_half_of_a_hosts_slots(crowd):
    tenants = crowd(8)
    for number in range(500):
        tenants.enter(f"a{number}", "a")
    await settle()
    assert len(tenants.inside) == 4
    tenants.enter("b", "b")
    await settle()
    assert "b" in tenants.inside


async def test_namespaces_take_turns_however_many_wait(crowd):
    tenants = crowd(2)
    for number in range(20):
        tenants.enter(f"a{number}", "a")
    await settle()
    for number in range(3):
        tenants.enter(f"b{number}", "b")
        tenants.enter(f"c{number}", "c")
    await settle()
    seen = []
    for _ in range(9):
        seen += [name for name in tenants.inside if name not in seen]
        await tenants.leave(tenants.inside[0])
    assert {"b0", "c0"} <= set(seen[:4])
    assert [sum(name[0] == letter for name in seen) for letter in "abc"] == [len(seen) - 6, 3, 3]


async def test_one_namespace_is_served_in_the_order_of_asking(crowd):
    tenants = crowd(1)
    for number in range(5):
        tenants.enter(number, "a")
    await settle()
    for number in range(5):
        assert tenants.inside == [number]
        await tenants.leave(number)


async def test_hosts_do_not_wait_for_each_other(crowd):
    tenants = crowd(1)
    tenants.enter("x", "a", "one")
    tenants.enter("y", "a", "two")
    await settle()
    assert set(tenants.inside) == {"x", "y"}


async def test_where_nothing_is_sent_nobody_waits():
    limiter = FairLimiter(1)
    async with AsyncExitStack() as stack:
        for _ in range(50):
            await stack.enter_async_context(limiter.slot("", "a"))


async def test_a_single_slot_is_still_shared(crowd):
    tenants = crowd(1)
    tenants.enter("a", "a")
    tenants.enter("b", "b")
    await settle()
    assert tenants.inside == ["a"]
    await tenants.leave("a")
    assert tenants.inside == ["b"]


async def test_being_cancelled_while_queued_leaks_no_slot(crowd):
    tenants = crowd(2)
    tasks = [tenants.enter(number, "a") for number in range(10)]
    await settle()
    for task in tasks[1:]:
        task.cancel()
    await settle()
    await tenants.leave(0)
    tenants.enter("x", "a")
    tenants.enter("y", "b")
    await settle()
    assert set(tenants.inside) == {"x", "y"}


async def test_being_cancelled_in_the_moment_of_admission_leaks_no_slot(crowd):
    tenants = crowd(1)
    tenants.enter("first", "a")
    second = tenants.enter("second", "a")
    await settle()
    tenants.doors["first"][0].set()
    await asyncio.sleep(0)  # the first has left and so let in the second, whose task has not run yet
    assert tenants.limiter._hosts["sts"]._free == 0
    assert not tenants.inside
    second.cancel()
    await settle()
    tenants.enter("third", "b")
    await settle()
    assert tenants.inside == ["third"]


async def test_a_failure_inside_gives_the_slot_back():
    limiter = FairLimiter(1)
    for _ in range(3):
        with pytest.raises(KeyError):
            async with limiter.slot("sts", "a"):
                raise KeyError
    line = limiter._hosts["sts"]
    assert line._free == 1
    assert not line._running
    assert not line._waiting
