"""Generations per second of the files sink, against the system calls without which there is no generation.

The floor does what the sink's layout demands and nothing else: a directory, its files with their mode, one link swapped, and
an old generation removed; on a disk it waits for it (fsync) where the sink does. Once with one replaced generation kept, as
in a day's work, and once with 32, as many as there ever are: the sink looks at the age of each.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import structlog

from agent.clock import WallClock
from agent.counters import Counters
from agent.model import Grant, IdentityToken, Key, Secret
from agent.offload import memory_backed
from agent.providers.generic import GenericCredential, GenericSettings
from agent.settings import Duration
from agent.sinks.files.sink import FilesSettings, FilesSink
from agent.toolbox import Toolbox
from bench import figures

RUNS = 7
GENERATIONS = {"memory": 400, "disk": 100}
KEPT = (1, 32)
TOKEN = "t" * 1100
"""About as long as a ServiceAccount's token."""
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    for kind, parent in (("memory", Path("/dev/shm")), ("disk", Path(tempfile.gettempdir()))):
        if memory_backed(parent) is not (kind == "memory"):
            figures.title(f"Files sink on {kind}: left out, {parent} is not that")
            continue
        figures.title(f"Files sink on {kind}, whole generations in a row, against the bare system calls")
        for kept in KEPT:
            compared(parent, GENERATIONS[kind], kept, durable=kind == "disk")


def compared(parent: Path, generations: int, kept: int, *, durable: bool) -> None:
    sink, floor = list[float](), list[float]()
    for run in range(RUNS + 1):
        for results, work in (
            (floor, lambda folder: bare(folder, generations, kept, durable=durable)),
            (sink, lambda folder: through_the_sink(folder, generations, kept)),
        ):
            speed = generations / measured(work, parent)
            if run:
                results.append(speed)
    figures.ratio(f"generations, {kept} kept", sink, floor, "per second")
    figures.ratio(f"time of one, {kept} kept", [1000 / speed for speed in sink], [1000 / speed for speed in floor], "ms")


def measured(work: Callable[[Path], None], parent: Path) -> float:
    """Seconds."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        began = time.perf_counter()
        work(Path(name))
        return time.perf_counter() - began


def through_the_sink(folder: Path, generations: int, kept: int) -> None:
    grace = Duration(0 if kept == 1 else 3600)  # what was replaced before goes with the next, or at its 33rd
    asyncio.run(_write(FilesSettings(directory=str(folder / "identity"), grace=grace), generations))


async def _write(settings: FilesSettings, generations: int) -> None:
    async def nobody() -> object:
        raise NotImplementedError

    tools = Toolbox(clock=WallClock(), random=Random(1), counters=Counters(), http=nobody)  # type: ignore[arg-type]
    sink = FilesSink(settings, "bench", "d" * 64, tools)
    now = datetime.now(UTC)
    for number in range(1, generations + 1):
        token = IdentityToken(
            value=Secret(f"{TOKEN}{number}"), issuer="i", subject="s", audiences=("a",), issued_at=now, expires_at=now + timedelta(hours=1)
        )
        credential = GenericCredential(GenericSettings(audiences=("a",)))
        await sink.write(Grant(key=Key("bench"), digest="d" * 64, token=token, credential=credential, generation=number))
    await sink.close()


def bare(folder: Path, generations: int, kept: int, *, durable: bool) -> None:
    directory = folder / "identity"
    directory.mkdir()
    root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(1, generations + 1):
        files = {"token": f"{TOKEN}{number}".encode(), "config": b"{}", "grant.json": b"g" * 600}
        name = f"..{number}"
        os.mkdir(name, 0o700, dir_fd=root)
        generation = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=root)
        for file, content in files.items():
            fd = os.open(file, FLAGS, 0o600, dir_fd=generation)
            os.write(fd, content)
            os.fchmod(fd, 0o640)
            if durable:
                os.fsync(fd)
            os.close(fd)
        os.fchmod(generation, 0o750)
        if durable:
            os.fsync(generation)
        os.close(generation)
        os.symlink(name, "..data_tmp", dir_fd=root)
        os.rename("..data_tmp", "..data", src_dir_fd=root, dst_dir_fd=root)
        for file in files if number == 1 else ():
            os.symlink(f"..data/{file}", file, dir_fd=root)
        if durable:
            os.fsync(root)
        with suppress(FileNotFoundError):
            old = os.open(f"..{number - kept}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=root)
            for file in files:
                os.unlink(file, dir_fd=old)
            os.close(old)
            os.rmdir(f"..{number - kept}", dir_fd=root)
    os.close(root)
