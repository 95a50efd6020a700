"""Calls that block on a disk, kept off the event loop.

A volume in memory answers at once and is used in place. Anything else gets a daemon thread of its own for each call,
so that a hung disk holds up neither the loop, nor another identity, nor the end of the process.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agent.liveness import within

T = TypeVar("T")

MEMORY = frozenset({"tmpfs", "ramfs"})


def memory_backed(path: Path) -> bool:
    """Return whether the nearest existing directory of this path is in memory; False if that is unknown."""
    try:
        while not path.exists() and path != path.parent:
            path = path.parent
        device = path.stat().st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields = line.split()
            if fields[2] == wanted:
                return fields[fields.index("-") + 1] in MEMORY
    except (OSError, ValueError, IndexError):
        pass
    return False


async def in_thread(name: str, call: Callable[[], T]) -> T:
    """What `call` returns or raises, from a daemon thread; on cancellation the thread is left to end by itself."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # T may be None
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as caught:  # noqa: BLE001  # carried to the caller, whole: it waits for something
            error = caught
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop has ended, and with it every task that waited

    threading.Thread(target=run, name=name, daemon=True).start()
    with within(None):  # a disk that hangs is not a task that does
        return await future
