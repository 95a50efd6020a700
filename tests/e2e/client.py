"""An unmodified client as a workload runs it: made once, in a shell that took its variables, and asked again and again."""

import asyncio
import json
import shlex
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from typing import Any

from tests.e2e.daemon import COMMAND, Daemon


class Client:
    """One process, which answers each line with one line of JSON."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, line: str = "") -> dict[str, Any]:
        """What it says to that."""
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n".encode())
        return await self.line()

    async def line(self) -> dict[str, Any]:
        """What it says next."""
        assert self._process.stdout
        assert self._process.stderr
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, (await self._process.stderr.read()).decode()
        found: dict[str, Any] = json.loads(line)
        return found

    async def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        assert await asyncio.wait_for(self._process.wait(), 60) == 0


def taking(daemon: Daemon, name: str, *command: str, via: str = "files", dialect: str = "") -> list[str]:
    """The command, by a shell that first took what `wi-agent env NAME --via …` prints, of that dialect where there are several."""
    told = [*COMMAND, "-c", str(daemon.file), "env", name, "--via", via, *(("--dialect", dialect) if dialect else ())]
    return ["/bin/sh", "-c", f'told="$({shlex.join(told)})" && eval "$told" && exec {shlex.join(command)}']


async def started(daemon: Daemon, command: list[str], more: Mapping[str, str]) -> Client:
    """A client that has said that it is ready."""
    environment = {**daemon.environment, **more}
    process = await asyncio.create_subprocess_exec(*command, cwd=daemon.folder, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    client = Client(process)
    await client.line()
    return client


async def once(daemon: Daemon, command: list[str], more: Mapping[str, str]) -> str:
    """What a short-lived client prints."""
    environment = {**daemon.environment, **more}
    process = await asyncio.create_subprocess_exec(*command, cwd=daemon.folder, env=environment, stdout=PIPE, stderr=PIPE)
    out, err = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0, err.decode()
    return out.decode().strip()
