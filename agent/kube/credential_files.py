"""The files of one way to an API server: read anew when one of them has changed, once for all requests that wait for them."""

import asyncio
import copy
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from agent.clock import Clock
from agent.errors import RefreshError, Unavailable
from agent.kube.credentials import ApiCredentials, Reader, read_file
from agent.offload import in_thread

RECENT_SECONDS = 2.0
"""A file that changed so shortly before it was read may change again within one step of its time stamp: it is read again."""
DISK_TIMEOUT_SECONDS = 10.0
LOOK_SECONDS = 5.0
"""Between two looks at the files while the API server refuses what was read there."""

Signature = tuple[int, ...] | None
"""Of a file; None if it cannot be found."""


@dataclass(frozen=True, slots=True)
class _Found:
    files: Mapping[Path, Signature]
    outcome: ApiCredentials | RefreshError
    settled: bool
    """Whether the files are older than `RECENT_SECONDS`, so that equal signatures mean equal content."""


@dataclass(slots=True)
class Credentials:
    """`load` reads every file by the reader that it is called with."""

    load: Callable[[Reader], ApiCredentials]
    clock: Clock
    version: int = 0
    """Counts up with each change of the files that was seen."""
    _found: _Found | None = None
    _rounds: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _looked: datetime | None = None

    async def access(self) -> ApiCredentials:
        """Return what the files say now. Raises NotReady, Unavailable or Rejected."""
        found = await self._look()
        if isinstance(found.outcome, RefreshError):
            raise copy.copy(found.outcome)  # each caller adds its own name
        return found.outcome

    async def changed(self, version: int) -> bool:
        """Return whether the files are others than at that version; they are looked at once a second, however many ask."""
        now = self.clock.now()
        if self._looked is None or not 0 <= (now - self._looked).total_seconds() < 1:
            try:
                await self._look()
            except Unavailable:  # a disk that hangs: the next request says so
                return False
        return self.version != version

    async def _look(self) -> _Found:
        rounds = self._rounds
        async with self._turn:
            if self._rounds == rounds or self._found is None:  # no other caller looked while this one waited
                try:
                    async with asyncio.timeout(DISK_TIMEOUT_SECONDS):
                        found = await in_thread("read kube credentials", self._read)
                except TimeoutError:
                    raise Unavailable(f"cannot read the agent's own credentials within {DISK_TIMEOUT_SECONDS:g} s") from None
                if self._found is None or found.files != self._found.files:
                    self.version += 1
                self._found, self._looked = found, self.clock.now()
                self._rounds += 1
            return self._found

    def _read(self) -> _Found:
        """In a thread: a disk may hang."""
        found = self._found
        if found and found.settled and all(_signature(path) == signature for path, signature in found.files.items()):
            return found
        files: dict[Path, Signature] = {}

        def read(path: Path, remedy: str) -> str:
            files[path] = _signature(path)  # before it is read: what changes meanwhile is read again
            return read_file(path, remedy)

        outcome: ApiCredentials | RefreshError
        try:
            outcome = self.load(read)
        except RefreshError as error:
            outcome = error.with_traceback(None)
        newest = max((signature[0] for signature in files.values() if signature), default=0)
        return _Found(files, outcome, settled=None not in files.values() and time.time_ns() - newest > RECENT_SECONDS * 1e9)


def _signature(path: Path) -> Signature:
    try:
        found = os.stat(path)  # noqa: PTH116  # through symbolic links, as it is read
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
