"""When a changed configuration is read, and when not yet."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from agent.config import reload
from agent.config.loading import load
from agent.config.model import Config
from agent.config.reload import POLL_SECONDS, SETTLE_SECONDS, Reloader
from agent.counters import Counters
from agent.store import Store
from agent.tasks import REMEDY, Tasks
from agent.toolbox import Toolbox
from tests.e2e.daemon import configuration, identity
from tests.fakes import FakeClock
from tests.test_liveness import no_http


class Taken:
    """A fleet that writes down which identities it was given."""

    def __init__(self) -> None:
        self.names: list[list[str]] = []

    async def apply(self, config: Config) -> None:
        self.names.append([one.name for one in config.identities])


def text(*names: str) -> str:
    whole: dict[str, Any] = configuration(*(identity(name) for name in names))
    return yaml.safe_dump(whole, sort_keys=False)


async def until(done: Callable[[], bool]) -> None:
    """The file is read in a thread."""
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def reloading(path: Path, clock: FakeClock) -> AsyncIterator[tuple[Reloader, Taken]]:
    """One that runs with what the file holds now."""
    taken = Taken()
    reloader = Reloader(path, {}, load(path, {}), taken.apply, clock)
    task = asyncio.create_task(reloader.run())
    try:
        yield reloader, taken
    finally:
        task.cancel()


async def test_a_file_that_is_being_written_is_not_read_before_it_is_whole(tmp_path: Path) -> None:
    """Its beginning would be a good configuration, and every identity after that would be withdrawn."""
    path, clock = tmp_path / "config.yaml", FakeClock()
    path.write_text(text("one", "two"))
    whole = text("one", "two", "three")
    beginning = whole[: whole.index("- name: two")]
    path.with_name("beginning").write_text(beginning)
    assert [one.name for one in load(path.with_name("beginning"), {}).identities] == ["one"], "good by itself"
    async with reloading(path, clock) as (_, taken):
        path.write_text(beginning)
        await clock.advance(POLL_SECONDS + SETTLE_SECONDS / 2)
        path.write_text(whole)
        await clock.advance(SETTLE_SECONDS)
        assert taken.names == [], "it is another than it was"
        await clock.advance(POLL_SECONDS + SETTLE_SECONDS)
        await until(lambda: taken.names == [["one", "two", "three"]])
        await clock.advance(10 * POLL_SECONDS)
        assert len(taken.names) == 1, "read once"


async def test_a_changed_file_is_read_within_six_seconds_and_at_once_on_sighup(tmp_path: Path) -> None:
    path, clock = tmp_path / "config.yaml", FakeClock()
    path.write_text(text("one"))
    async with reloading(path, clock) as (reloader, taken):
        await clock.advance(POLL_SECONDS)
        path.write_text(text("one", "two"))
        await clock.advance(POLL_SECONDS + SETTLE_SECONDS)
        await until(lambda: taken.names == [["one", "two"]])
        path.write_text(text())
        reloader.asked.set()
        await clock.advance(0)
        await until(lambda: taken.names[1:] == [[]])  # who says so has written it


async def test_a_bug_in_reading_is_shown_and_the_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, clock = tmp_path / "config.yaml", FakeClock()
    path.write_text(text("one"))
    taken = Taken()
    reloader = Reloader(path, {}, load(path, {}), taken.apply, clock)
    faults: list[Exception] = [ValueError("canary"), RecursionError("canary")]

    def fail(*_: object, **__: object) -> Config:
        if faults:
            raise faults.pop(0)
        return load(path, {})

    monkeypatch.setattr(reload, "load", fail)
    async with asyncio.TaskGroup() as group:
        tasks = Tasks(group, Store(), Toolbox(clock=clock, random=Random(0), counters=Counters(), http=no_http))
        running = tasks.start("reload", reloader.run)
        reloader.asked.set()
        await clock.advance(0)
        await until(lambda: not reloader.successful)
        assert reloader.refused == (f"cannot read {path}: ValueError ({REMEDY})",)
        assert [failure.task for failure in tasks.failures()] == ["reload"]
        await clock.advance(3 * (POLL_SECONDS + SETTLE_SECONDS))
        await until(lambda: taken.names == [["one"]])
        assert reloader.successful
        assert reloader.refused == ()
        running.cancel()


async def test_an_empty_file_is_refused_and_an_empty_list_withdraws_all(tmp_path: Path) -> None:
    path, clock = tmp_path / "config.yaml", FakeClock()
    path.write_text(text("one"))
    async with reloading(path, clock) as (reloader, taken):
        for empty in ("", "# nothing\n", "{}\n", "refresh: {at: 0.5}\n"):
            path.write_text(empty)
            assert not await reloader.reload()
            assert "identities: missing" in reloader.refused[0]
        assert taken.names == []
        path.write_text(text())
        assert await reloader.reload()
        assert taken.names == [[]]


async def test_a_file_that_is_not_read_in_time_is_refused_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, clock = tmp_path / "config.yaml", FakeClock()
    path.write_text(text("one"))
    hung = threading.Event()

    def read(*_: object, **__: object) -> Config:
        hung.wait(10)
        return load(path, {})

    async with reloading(path, clock) as (reloader, taken):
        monkeypatch.setattr(reload, "load", read)
        monkeypatch.setattr(reload, "READ_TIMEOUT_SECONDS", 0.02)
        assert not await reloader.reload()
        assert "cannot read the file within 0.02 s" in reloader.refused[0]
        assert not await reloader.reload()
        assert "still reading" in reloader.refused[0]
        assert [thread.name for thread in threading.enumerate()].count("read configuration") == 1
        monkeypatch.setattr(reload, "READ_TIMEOUT_SECONDS", 10.0)
        hung.set()
        await until(lambda: "read configuration" not in [thread.name for thread in threading.enumerate()])
        await clock.advance(POLL_SECONDS + SETTLE_SECONDS)
        await until(lambda: taken.names == [["one"]])
        assert reloader.successful
