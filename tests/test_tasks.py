"""What a task raises stays with it: logged once, counted, shown, and followed by another start."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.model import Key
from agent.record import Profile
from agent.tasks import RECOVERED_SECONDS, REMEDY
from tests.fakes import settle
from tests.test_liveness import Bench

CANARY = "canary-7f3a"
KEY = Key("one")


@asynccontextmanager
async def benched() -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)
        bench.store.enrol(Profile(name="one", digest="d", source="fake", provider="fake", sinks=()))
        yield bench
        bench.end()


class Work:
    """Raises what it is told to, then waits."""

    def __init__(self, bench: Bench, *faults: BaseException) -> None:
        self.bench = bench
        self.faults = list(faults)
        self.starts: list[Any] = []

    async def __call__(self) -> None:
        self.starts.append(self.bench.clock.now())
        if self.faults:
            raise self.faults.pop(0)
        await self.bench.clock.sleep(86400)


@pytest.mark.parametrize(
    "fault",
    [
        OverflowError(CANARY),
        RecursionError(CANARY),
        MemoryError(),
        asyncio.CancelledError(CANARY),
        ExceptionGroup(CANARY, [KeyError(CANARY)]),
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_an_unexpected_exception_ends_no_other_task(fault: BaseException) -> None:
    async with benched() as bench:
        work, other = Work(bench, fault), Work(bench)
        bench.started.append(bench.tasks.start("serviceaccount", work, KEY))
        bench.run(other)
        with capture_logs() as logs:
            await bench.clock.advance(3)
        assert len(work.starts) == 2, "it was started again"
        assert len(other.starts) == 1
        assert not any(task.done() for task in bench.started)
        assert bench.counters.refreshes["one", "defect"] == 1
        assert bench.counters.task_failures["serviceaccount"] == 1
        (failure,) = bench.tasks.failures()
        assert (failure.task, failure.remedy) == ("serviceaccount one", REMEDY)
        record = bench.store.record(KEY)
        assert record
        assert record.failure
        assert (record.failure.reaction, record.failure.remedy) == ("defect", REMEDY)
        assert [entry["event"] for entry in logs] == ["task.failed"]
        assert CANARY not in repr([logs, failure, record.failure])


async def test_the_same_failure_again_is_logged_once_and_backed_off() -> None:
    async with benched() as bench:
        work = Work(bench)

        async def fail() -> None:
            work.starts.append(bench.clock.now())
            raise ValueError(CANARY)

        bench.run(fail)
        with capture_logs() as logs:
            await bench.clock.advance(3600)
        assert [entry["log_level"] for entry in logs if entry["event"] == "task.failed"].count("error") == 1
        assert 60 <= len(work.starts) <= 130, "a minute apart, with half of it jitter"
        gaps = [(after - before).total_seconds() for before, after in zip(work.starts, work.starts[1:], strict=False)]
        assert gaps[0] <= 2
        assert 30 <= gaps[-1] <= 60
        assert bench.counters.task_failures["reload"] == len(work.starts)
        assert bench.tasks.unwell() == [], "a restart of the agent would not mend it"


async def test_a_task_that_runs_again_is_no_longer_shown() -> None:
    async with benched() as bench:
        bench.run(Work(bench, ValueError()))
        await bench.clock.advance(30)
        assert bench.tasks.failures()
        with capture_logs() as logs:
            await bench.clock.advance(RECOVERED_SECONDS)
        assert not bench.tasks.failures()
        assert [entry["event"] for entry in logs] == ["task.recovered"]


async def test_a_task_of_the_process_that_returns_is_started_again() -> None:
    async with benched() as bench:
        starts = []

        async def end() -> None:
            starts.append(bench.clock.now())

        bench.run(end, "events")
        await bench.clock.advance(5)
        assert len(starts) >= 2


async def test_a_task_of_an_identity_that_returns_has_ended() -> None:
    async with benched() as bench:

        async def end() -> None:
            pass

        bench.started.append(bench.tasks.start("refresh", end, KEY))
        await settle()
        assert bench.started[0].done()
        assert bench.tasks.unwell() == []


async def test_an_identity_that_is_gone_is_not_counted_again() -> None:
    async with benched() as bench:
        bench.store.forget("one")
        bench.started.append(bench.tasks.start("serviceaccount", Work(bench, ValueError()), KEY))
        await bench.clock.advance(3)
        assert not bench.counters.refreshes
        assert bench.counters.task_failures["serviceaccount"] == 1
