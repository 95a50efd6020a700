"""Blocking calls in threads of their own."""

import asyncio
import threading
from pathlib import Path

import pytest

from agent.offload import in_thread, memory_backed


async def test_a_calls_result_and_its_exception_come_back():
    assert await in_thread("t", lambda: 5) == 5
    assert await in_thread("t", lambda: None) is None
    with pytest.raises(KeyError, match="gone"):
        await in_thread("t", lambda: {}["gone"])


async def test_even_an_exit_comes_back_to_who_waits():
    class Odd(BaseException):
        pass

    def leave():
        raise Odd

    with pytest.raises(Odd):
        async with asyncio.timeout(2):
            await in_thread("t", leave)


async def test_calls_do_not_wait_for_each_other_and_a_hung_one_can_be_left():
    answer = threading.Event()
    hung = [asyncio.ensure_future(in_thread("hung", lambda: answer.wait(5))) for _ in range(40)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(in_thread("t", lambda: "at once"), 2) == "at once"
    for task in hung:
        task.cancel()
    await asyncio.gather(*hung, return_exceptions=True)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "hung")
    answer.set()
    async with asyncio.timeout(2):
        while any(thread.name == "hung" for thread in threading.enumerate()):
            await asyncio.sleep(0.01)


def test_a_path_that_may_not_be_looked_at_is_taken_to_lie_on_a_disk(tmp_path, monkeypatch):
    assert not memory_backed(tmp_path / ("x" * 300))

    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.stat", forbidden)
    assert not memory_backed(Path("/private/tokens/one"))


def test_what_lies_in_memory_is_known_by_the_nearest_directory_there_is():
    shm = Path("/dev/shm")
    if not shm.is_dir():
        pytest.skip("no tmpfs to look at")
    assert memory_backed(shm)
    assert memory_backed(shm / "not" / "there")
    assert not memory_backed(Path("/proc/self"))
