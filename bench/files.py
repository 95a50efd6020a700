"""Generations per second of the files sink, against the system calls without which there is no generation.

The floor does what the sink's layout demands and nothing else: a directory, its files with their mode, one link swapped, and
the generation before the last 32 removed; on a disk it waits for it (fsync) where the sink does.
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
from agent.model import Grant, IdentityToken, Key, Secret
from agent.offload import memory_backed
from agent.providers.generic import GenericCredential, GenericSettings
from agent.settings import Duration
from agent.sinks.files import FilesSettings, FilesSink
from agent.tally import Tally
from agent.toolbox import Toolbox
from bench import figures

RUNS = 7
GENERATIONS = {"memory": 400, "disk": 100}
KEPT = 32
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
        sink, floor = list[float](), list[float]()
        for run in range(RUNS + 1):
            for results, work in ((floor, bare), (sink, through_the_sink)):
                speed = measured(work, parent, GENERATIONS[kind], durable=kind == "disk")
                if run:
                    results.append(speed)
        figures.ratio("generations", sink, floor, "per second")
        figures.ratio("time of one", [1000 / speed for speed in sink], [1000 / speed for speed in floor], "ms")


Work = Callable[[Path, int, bool], None]


def measured(work: Work, parent: Path, generations: int, *, durable: bool) -> float:
    """Generations per second."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        began = time.perf_counter()
        work(Path(name), generations, durable)
        return generations / (time.perf_counter() - began)


def through_the_sink(folder: Path, generations: int, _durable: bool) -> None:  # noqa: FBT001
    settings = FilesSettings(directory=str(folder / "identity"), grace=Duration(3600))
    asyncio.run(_write(settings, generations))


async def _write(settings: FilesSettings, generations: int) -> None:
    async def nobody() -> object:
        raise NotImplementedError

    tools = Toolbox(clock=WallClock(), random=Random(1), tally=Tally(), http=nobody)  # type: ignore[arg-type]
    sink = FilesSink(settings, "bench", "d" * 64, tools)
    now = datetime.now(UTC)
    for number in range(1, generations + 1):
        token = IdentityToken(
            value=Secret(f"{TOKEN}{number}"), issuer="i", subject="s", audiences=("a",), issued_at=now, expires_at=now + timedelta(hours=1)
        )
        credential = GenericCredential(GenericSettings(audiences=("a",)))
        await sink.write(Grant(key=Key("bench"), digest="d" * 64, token=token, credential=credential, generation=number))
    await sink.close()


def bare(folder: Path, generations: int, durable: bool) -> None:  # noqa: FBT001
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
            old = os.open(f"..{number - KEPT}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=root)
            for file in files:
                os.unlink(file, dir_fd=old)
            os.close(old)
            os.rmdir(f"..{number - KEPT}", dir_fd=root)
    os.close(root)
