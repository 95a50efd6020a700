"""A task is hung when it is past its own promise while the loop turns, and for no other reason."""

import asyncio
from random import Random
from typing import Any

from agent.counters import Counters
from agent.liveness import HUNG_AFTER_SECONDS, WORK_SECONDS, within
from agent.offload import in_thread
from agent.store import Store
from agent.tasks import Tasks
from agent.toolbox import Toolbox
from tests.fakes import FakeClock, settle


async def no_http() -> Any:
    raise AssertionError("nothing is sent")


class Bench:
    """One group of tasks under a clock that tests move."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.clock = FakeClock()
        self.store = Store()
        self.counters = Counters()
        self.tasks = Tasks(group, self.store, Toolbox(clock=self.clock, random=Random(0), counters=self.counters, http=no_http))
        self.watch = group.create_task(self.tasks.watch())
        self.started: list[asyncio.Task[None]] = []

    def run(self, work: Any, kind: Any = "reload") -> None:
        self.started.append(self.tasks.start(kind, work))

    def end(self) -> None:
        for task in (self.watch, *self.started):
            task.cancel()


LONG = WORK_SECONDS + HUNG_AFTER_SECONDS + 30


async def test_a_task_that_never_comes_to_its_next_wait_is_hung_and_named() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)
        lost = asyncio.Event()

        async def hang() -> None:
            await bench.clock.sleep(5)
            await lost.wait()  # no clock, no timeout

        bench.run(hang)
        await bench.clock.advance(WORK_SECONDS)
        assert bench.tasks.unwell() == []
        await bench.clock.advance(LONG)
        (line,) = bench.tasks.unwell()
        assert line.startswith("task reload is hung, ")
        bench.end()


async def test_a_wait_by_the_clock_is_hung_only_past_its_end() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)
        bench.run(lambda: bench.clock.sleep(3600))
        await bench.clock.advance(3599)
        assert bench.tasks.unwell() == []
        bench.end()


async def test_a_timer_that_never_fires_is_hung() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)

        async def lose_a_timer() -> None:
            with within(10):
                await asyncio.Event().wait()

        bench.run(lose_a_timer)
        await bench.clock.advance(10 + HUNG_AFTER_SECONDS - 5)
        assert bench.tasks.unwell() == []
        await bench.clock.advance(10)
        assert bench.tasks.unwell()
        bench.end()


async def test_a_wait_for_another_is_never_hung() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)

        async def wait() -> None:
            with within(None):
                await asyncio.Event().wait()

        bench.run(wait)
        await bench.clock.advance(86400)
        assert bench.tasks.unwell() == []
        bench.end()


async def test_a_disk_that_hangs_is_not_a_hung_task() -> None:
    import threading

    answered = threading.Event()
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)

        async def read() -> None:
            await in_thread("a disk", answered.wait)

        bench.run(read)
        await bench.clock.advance(86400)
        assert bench.tasks.unwell() == []
        answered.set()
        bench.end()


async def test_a_suspended_machine_or_a_changed_clock_hangs_nothing() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)

        async def work() -> None:
            await bench.clock.sleep(30)
            await asyncio.Event().wait()

        bench.run(work)
        for seconds in (86400, -2 * 86400, 86400):
            bench.clock.jump(seconds)
            await bench.clock.advance(6)
            assert bench.tasks.unwell() == []
        bench.end()


async def test_a_promise_inside_another_is_followed_by_the_outer_one() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)

        async def work() -> None:
            with within(None):
                await bench.clock.sleep(30)
                await asyncio.Event().wait()

        bench.run(work)
        await bench.clock.advance(86400)
        assert bench.tasks.unwell() == [], "the sleep ended, and the outer wait goes on"
        bench.end()


async def test_what_a_task_of_a_task_waits_for_is_not_its_promise() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)

        async def inner() -> None:
            with within(1):
                await asyncio.Event().wait()

        async def work() -> None:
            bench.started.append(asyncio.ensure_future(inner()))
            await bench.clock.sleep(86400)

        bench.run(work)
        await bench.clock.advance(LONG)
        assert bench.tasks.unwell() == []
        bench.end()


async def test_a_task_of_the_process_that_is_cancelled_is_dead_and_named() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)
        bench.run(lambda: bench.clock.sleep(3600), "events")
        await settle()
        bench.started[0].cancel()
        await settle()
        assert bench.tasks.unwell() == ["task events is dead"]
        bench.end()
