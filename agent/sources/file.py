"""Identity tokens that another process keeps fresh in a file: kubelet's projected volume, or any other agent."""

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from agent.claims import MAX_TOKEN_BYTES, read_token
from agent.errors import NotReady, Rejected, Unavailable
from agent.model import IdentityToken
from agent.offload import in_thread, memory_backed
from agent.sanitize import repeatable
from agent.settings import Settings
from agent.toolbox import Toolbox

T = TypeVar("T")
Stamp = tuple[int, int, int, int]

LOOK_EVERY = 10.0
"""Seconds between looks at the file."""
FIRST_LOOK_SECONDS = 0.5
"""After the start, by when the file has been read unless what an earlier process left was adopted: the file may be another since."""


class FileSettings(Settings, tag="file", tag_field="type"):
    """A token file."""

    path: str


class FileSource:
    """Reads the file anew for each fetch, and reports its changes."""

    host = ""

    def __init__(self, settings: FileSettings, identity: str, toolbox: Toolbox) -> None:
        self._path = Path(settings.path)
        self._identity = identity
        self._clock = toolbox.clock
        self._turn = asyncio.Lock()
        self._busy = False
        """A thread has not come back from the disk."""
        self._memory: bool | None = None
        self._seen: Stamp | None = None
        """Of the file last read."""
        self._looked = False
        self._told: Stamp | None = None
        """Of the file last said to have changed."""

    async def fetch(self, audiences: Sequence[str]) -> IdentityToken:
        """Return the file's token. Its writer chose the audience, so the source refuses a wrong one, by name."""
        text = await self._reading(self._read)
        if not text:
            raise NotReady(
                f"{self._identity}: the token file {self._path} is empty",
                remedy="check that its writer runs: it has not written a token yet",
            )
        now = self._clock.now()
        token = read_token(text, whose=f"{self._identity}: {self._path}", now=now)
        if token.expires_at <= now:
            raise Rejected(
                f"{self._identity}: the token in {self._path} expired at {token.expires_at:%Y-%m-%dT%H:%M:%SZ}",
                remedy="check that the writer of the file renews it, and that the clocks agree",
            )
        if audiences and not set(audiences) & set(token.audiences):
            raise Rejected(
                f"{self._identity}: the token in {self._path} is for {repeatable(', '.join(token.audiences), [token.value]) or 'nothing'},"
                f" not for {', '.join(audiences)}",
                remedy="project the token with that audience, or set the provider's audiences",
            )
        return token

    async def changed(self) -> None:
        """Return when the file is not the one last fetched; each change is reported once."""
        while True:
            await self._clock.sleep(LOOK_EVERY if self._looked else FIRST_LOOK_SECONDS)
            self._looked = True
            try:
                stamp = await self._reading(lambda: _stamp(self._path.stat()))
            except (OSError, Unavailable):
                continue  # gone or unreadable: the next fetch says so, and the token at hand stays good
            if stamp not in {self._seen, self._told}:
                self._told = stamp
                return

    async def _reading(self, call: Callable[[], T]) -> T:
        """Return what the call returns; in a thread, unless the file is in memory. While one hangs, no second one is started."""
        if self._memory:
            return call()

        def work() -> T:
            try:
                if self._memory is None:
                    self._memory = memory_backed(self._path)  # here, for this asks the disk too
                return call()
            finally:
                self._busy = False

        async with self._turn:
            if self._busy:
                raise Unavailable(
                    f"{self._identity}: the disk under {self._path} does not answer",
                    remedy="check the volume; no other identity waits for it",
                )
            self._busy = True
            try:
                return await in_thread(f"read {self._identity}", work)
            except RuntimeError:  # no thread could be begun
                self._busy = False
                raise

    def _read(self) -> str:
        try:
            with open(self._path, "rb", opener=_patiently) as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise Rejected(f"{self._identity}: {self._path} is not a regular file", remedy="set source.path to a token file")
                self._seen = _stamp(found)
                data = file.read(MAX_TOKEN_BYTES + 1)
        except IsADirectoryError:  # said by open, before its kind can be asked for
            raise Rejected(f"{self._identity}: {self._path} is not a regular file", remedy="set source.path to a token file") from None
        except FileNotFoundError:
            raise NotReady(f"{self._identity}: there is no token file {self._path}", remedy="check the mount and source.path") from None
        except PermissionError:
            raise Rejected(
                f"{self._identity}: cannot read the token file {self._path}: permission denied",
                remedy=f"let uid {os.geteuid()} or its groups read it",
            ) from None
        except OSError as error:
            raise Unavailable(f"{self._identity}: cannot read the token file {self._path}: {error.strerror}") from error
        if len(data) > MAX_TOKEN_BYTES:
            raise Rejected(
                f"{self._identity}: {self._path} is longer than {MAX_TOKEN_BYTES} bytes", remedy="set source.path to a token file"
            )
        try:
            return data.decode("ascii").strip()
        except UnicodeDecodeError:
            raise Rejected(f"{self._identity}: {self._path} is not a JWT", remedy="set source.path to a token file") from None


def _patiently(path: str, flags: int) -> int:
    """Open without waiting for a writer of a FIFO; as an opener, so that `open` closes the descriptor of a directory."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def _stamp(found: os.stat_result) -> Stamp:
    """Return a value that changes with the content, and with the access rights."""
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
