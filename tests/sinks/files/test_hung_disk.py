"""A disk that does not answer holds up its own sink and nobody else, and nobody waits for the thread that went to it."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import Unavailable
from tests.processor import own_time
from tests.sinks.files.grants_and_sinks import Bench, contents, generations, make_grant


class Disk:
    """Hangs when told to, in `os.mkdir` of a generation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answering = threading.Event()
        self.answering.set()
        self.asked = 0
        from agent.sinks.files import atomic_writer

        stage = atomic_writer.stage

        def slow(*args, **named):
            self.asked += 1
            assert self.answering.wait(20)
            return stage(*args, **named)

        monkeypatch.setattr(atomic_writer, "stage", slow)
        monkeypatch.setattr("agent.sinks.files.managed_directory.memory_backed", lambda _path: False)
        self._monkeypatch = monkeypatch

    def hang(self, patience: float = 0.05) -> None:
        self.answering.clear()
        self._monkeypatch.setattr("agent.sinks.files.sink.DISK_TIMEOUT_SECONDS", patience)

    def answer(self) -> None:
        self._monkeypatch.setattr("agent.sinks.files.sink.DISK_TIMEOUT_SECONDS", 9.0)
        self.answering.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.answer()


async def until_idle(sink) -> None:
    for _ in range(500):
        if sink._busy_since is None:
            return
        await asyncio.sleep(0.01)  # real time: a thread has to come back
    pytest.fail("the thread did not come back")


async def test_it_is_said_since_when_and_no_second_thread_is_sent(bench: Bench, directory: Path, disk: Disk) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant(1))
    disk.hang()
    for attempt in (sink.write(make_grant(2)), sink.write(make_grant(3)), sink.read(), sink.adopt()):
        with pytest.raises(Unavailable, match="the disk has not answered since 00:00:00 UTC"):
            await attempt
    assert disk.asked == 2
    assert contents(directory)["token"].endswith("app.1")
    disk.answer()
    await until_idle(sink)
    await sink.write(make_grant(4))
    assert contents(directory)["token"].endswith("app.4")


async def test_a_cancelled_call_leaves_the_thread_and_the_next_one_does_not_wait_for_it(bench: Bench, directory: Path, disk: Disk) -> None:
    sink = bench.sink(directory)
    disk.hang()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await sink.write(make_grant(1))
    with pytest.raises(Unavailable):
        await sink.write(make_grant(1))


async def test_neither_the_loop_nor_another_sink_waits(bench: Bench, directory: Path, disk: Disk) -> None:
    sink, other = bench.sink(directory), bench.sink(directory.with_name("other"), identity="other")
    await other.write(make_grant(identity="other"))
    disk.hang(patience=0.5)
    hung = asyncio.ensure_future(sink.write(make_grant()))
    began = own_time()
    assert await other.read()
    assert own_time() - began < 1
    with pytest.raises(Unavailable):
        await hung


async def test_closing_does_not_wait_for_ever_and_the_lock_goes_when_the_thread_does(bench: Bench, directory: Path, disk: Disk) -> None:
    sink = bench.sink(directory)
    disk.hang()
    with pytest.raises(Unavailable):
        await sink.write(make_grant(1))
    await sink.close()
    disk.answer()
    await until_idle(sink)
    await bench.sink(directory, identity="next").write(make_grant(1, identity="next"))


async def test_what_is_withdrawn_while_the_disk_hangs_goes_as_soon_as_it_answers(bench: Bench, directory: Path, disk: Disk) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant(1))
    disk.hang()
    with pytest.raises(Unavailable):
        await sink.write(make_grant(2))
    with pytest.raises(Unavailable):
        await sink.withdraw()
    disk.answer()
    await until_idle(sink)
    assert not directory.exists()


async def test_close_waits_for_a_short_operation_and_frees_the_directory(bench: Bench, directory: Path, disk: Disk) -> None:
    sink = bench.sink(directory)
    disk.hang()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await sink.write(make_grant(1))
    asyncio.get_running_loop().call_later(0.05, disk.answer)
    await sink.withdraw()
    assert not directory.exists()
    await bench.sink(directory, identity="next").write(make_grant(1, identity="next"))


async def test_closing_waits_a_moment_too_so_that_changed_settings_find_the_place_free(bench: Bench, directory: Path, disk: Disk) -> None:
    sink = bench.sink(directory)
    disk.hang()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await sink.write(make_grant(1))
    asyncio.get_running_loop().call_later(0.05, disk.answer)
    await sink.close()
    await bench.sink(directory).write(make_grant(2))


async def test_calls_at_the_same_time_take_turns(bench: Bench, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sinks.files.managed_directory.memory_backed", lambda _path: False)
    sink = bench.sink(directory)
    await asyncio.gather(*(sink.write(make_grant(number)) for number in range(1, 6)), sink.read())
    assert len(generations(directory)) == 5
    assert contents(directory)["token"].endswith("app.5")


async def test_a_volume_in_memory_is_used_in_place(bench: Bench, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sinks.files.managed_directory.memory_backed", lambda _path: True)
    sink = bench.sink(directory)
    await sink.write(make_grant(1))

    async def unexpected(*_args):
        raise AssertionError

    monkeypatch.setattr("agent.sinks.files.sink.in_thread", unexpected)
    await sink.write(make_grant(2))
    assert contents(directory)["token"].endswith("app.2")


@pytest.mark.parametrize(("memory", "synced"), [(True, 0), (False, 6)])
async def test_a_disk_is_waited_for_and_memory_is_not(
    bench: Bench, directory: Path, monkeypatch: pytest.MonkeyPatch, *, memory: bool, synced: int
) -> None:
    monkeypatch.setattr("agent.sinks.files.managed_directory.memory_backed", lambda _path: memory)
    order: list[str] = []
    import os

    fsync, rename = os.fsync, os.rename

    def noting_fsync(fd):
        order.append(os.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2])
        fsync(fd)

    def noting_rename(source, target, **named):
        order.append(f"{source} to {target}")
        rename(source, target, **named)

    sink = bench.sink(directory)
    await sink.write(make_grant(1))
    [first] = generations(directory)
    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "rename", noting_rename)
    await sink.write(make_grant(2))
    [second] = set(generations(directory)) - {first}
    swap = order.index("..data_tmp to ..data")
    assert len(order) - 1 == synced
    if not memory:
        assert sorted(order[: swap - 1]) == ["config", "credentialsFile", "grant.json", "token"]
        assert order[swap - 1 :] == [second, "..data_tmp to ..data", "app"]
