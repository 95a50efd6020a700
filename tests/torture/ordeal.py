"""Two readers in tight loops, and a writer that is killed with SIGKILL at random moments and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.torture.story import PERIOD

REPOSITORY = Path(__file__).parents[2]


@dataclass
class Outcome:
    """What came of it."""

    kills: int = 0
    interrupted: int = 0
    """Kills that are known to have come in the middle of a write."""
    readers: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """What lies in the directory besides links, `..data` and the live generation, after the last restart."""

    @property
    def faults(self) -> list[str]:
        found = [f"{reader['kind']}: {fault}" for reader in self.readers for fault in reader["faults"]]
        return found + [f"left behind: {name}" for name in self.left]


def start(module: str, *arguments: str, **named: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", f"tests.torture.{module}", *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, **named)


def torture(directory: Path, generations: int, *, kill_every: int, seed: int) -> Outcome:
    """Until so many generations are written; `kill_every`: generations that a writer lives, on average."""
    random, outcome, done = Random(seed), Outcome(), 0
    with start("writer", str(directory), stdin=subprocess.PIPE, bufsize=1) as writer:
        done = life(writer, 0, 1)
        readers = [start("reader", kind, str(directory), stdin=subprocess.PIPE) for kind in ("pinned", "by-path")]
        for reader in readers:
            assert reader.stdout
            assert json.loads(reader.stdout.readline())["ready"]
        try:
            while done < generations:
                until = done + random.randint(1, 2 * kill_every)
                done = life(writer, done, generations, until=until, delay=random.uniform(0, 1), outcome=outcome)
                outcome.interrupted += until <= done and interrupted(directory)
            life(writer, done, generations + 1)  # the last restart, unharmed
        finally:
            for reader in readers:
                answer, _ = reader.communicate(timeout=30)
                outcome.readers.append(json.loads(answer))
            writer.communicate()
    live = os.readlink(directory / "..data")
    names = {*os.listdir(directory)} - {"..data", "..lock", live, "token", "credentialsFile", "config", "grant.json"}
    outcome.left = sorted(names)
    return outcome


def life(writer: subprocess.Popen[str], done: int, last: int, *, until: int = 0, delay: float = 0, outcome: Outcome | None = None) -> int:
    """One writer, until it has finished or, if `until` is given, is killed a moment after it wrote that one; the last number it wrote."""
    assert writer.stdin
    assert writer.stdout
    writer.stdin.write(f"{last}\n")
    before, pid, killed, pace = done, 0, False, 0.01
    told = time.monotonic()
    for line in writer.stdout:
        fact = json.loads(line)
        if "ended" in fact:
            assert fact["ended"] == (-signal.SIGKILL if killed else 0), f"the writer failed with {fact['ended']}"
            return done
        if "pid" in fact:
            pid = fact["pid"]
            assert fact["adopted"] >= before, f"adopted {fact['adopted']} after {before} was written"
        else:
            now = time.monotonic()
            told, pace = now, 0.5 * pace + 0.5 * min(now - told, 0.1)
        done = max(done, fact.get("wrote", 0), fact.get("adopted", 0))
        if outcome and until <= done < last and not killed:
            time.sleep(PERIOD + delay * max(0.001, pace - PERIOD))  # into the next write
            os.kill(pid, signal.SIGKILL)
            killed = True
            outcome.kills += 1
    raise AssertionError("the writers' parent is gone")


def interrupted(directory: Path) -> bool:
    """Whether the kill came in the middle of a write: something was begun that is not live."""
    live = os.readlink(directory / "..data")
    made = {name: (directory / name).lstat().st_mtime_ns for name in os.listdir(directory) if name.startswith("..2")}
    return (directory / "..data_tmp").is_symlink() or max(made, key=made.__getitem__) != live
