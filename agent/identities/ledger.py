"""The ledger: which identity was delivered where, and which were revoked. It outlives the process and holds no secret.

At its next start the agent withdraws identities that the operator removed from the configuration while it was down, and keeps
revoked ones revoked. It names places only: whether the files there are the identity's, the files say.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import structlog

from agent.errors import ConfigError
from agent.model import Location
from agent.offload import in_thread
from agent.record import Revocation
from agent.sinks.files.private_file import PrivateFile

T = TypeVar("T")

log = structlog.get_logger()

MAX_LEDGER_BYTES = 4 << 20
"""A place takes some 150."""
MAX_PATH_BYTES = 4095
"""PATH_MAX of Linux, without its NUL."""
DISK_TIMEOUT_SECONDS = 2.0
"""For which a start, a reload or a revocation waits for the disk under the ledger."""
NOT_READ = "see which identities are revoked, and look for files of identities that were removed from the configuration"
NOT_WRITTEN = "make room, or let the agent write there; what is revoked or removed until then is forgotten at a restart"


class Delivered(msgspec.Struct, frozen=True, order=True):
    """Where an identity is delivered, or was and may still be."""

    identity: str
    kind: str
    """Of the sink: `files`."""
    place: str = msgspec.field(name="location")
    """As that kind of sink names it: an absolute path."""

    @classmethod
    def to(cls, location: Location, identity: str) -> Self:
        """Return the entry of an identity that is delivered there."""
        return cls(identity, location.kind, location.place)

    @property
    def location(self) -> Location:
        """Of the sink."""
        return Location(self.kind, self.place)


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """Of the file."""

    version: int
    delivered: tuple[Delivered, ...] = ()
    revoked: dict[str, Revocation] = {}


class Ledger:
    """One for the process."""

    def __init__(self, path: Path | None = None, *, socket: str = "") -> None:
        """`path` None: no restart remembers it. `socket`: the control socket that it belongs to, if its path was derived from one."""
        self._path = path
        self._socket = socket
        self._file = PrivateFile(path, MAX_LEDGER_BYTES) if path else None
        self._writable = False
        self._turn = asyncio.Lock()
        self._busy = False
        self._unread = False
        """The disk has not answered yet: what the file holds must not be overwritten unseen."""
        self._written: bytes | None = None
        self._failure = ""
        self.delivered: frozenset[Delivered] = frozenset()
        self.revoked: Mapping[str, Revocation] = {}

    async def open(self, *, keep: bool = True) -> None:
        """Read it, and hold it unless it is not to be kept; what cannot be read counts as empty, and is logged.

        Raises ConfigError if another agent holds it.
        """
        if self._file is None:
            return
        file, self._writable = self._file, keep
        try:
            if keep:
                await self._from_the_disk(file.hold)
        except BlockingIOError:
            if self._socket:
                raise ConfigError(f"another agent answers on {self._socket}", remedy="stop it, or set another control.socket") from None
            raise ConfigError(f"another agent keeps the ledger {self._path}", remedy="stop it, or set another control.ledger") from None
        except (OSError, TimeoutError):
            pass  # to read it says why, or to write it
        await self._read(file)

    async def _read(self, file: PrivateFile) -> None:
        self._unread = False
        try:
            content = _parsed(await self._from_the_disk(file.read))
        except (OSError, TimeoutError, ValueError) as error:
            self._unread = isinstance(error, TimeoutError)
            log.error("ledger.not_read", path=str(self._path), error=_said(error), remedy=NOT_READ)  # noqa: TRY400  # no more to it
            return
        self.delivered, self.revoked = self.delivered | frozenset(content.delivered), {**content.revoked, **self.revoked}

    def close(self) -> None:
        """Release the file for another agent."""
        if self._file:
            self._file.release()

    async def record(self, delivered: Iterable[Delivered]) -> bool:
        """Replace the places, as `save` returns."""
        self.delivered = frozenset(delivered)
        return await self.save()

    async def revoke(self, name: str, revocation: Revocation) -> bool:
        """Note that an identity was revoked, as `save` returns."""
        self.revoked = {**self.revoked, name: revocation}
        return await self.save()

    async def reinstate(self, name: str) -> bool:
        """Note that an identity is revoked no longer, as `save` returns."""
        self.revoked = {other: revocation for other, revocation in self.revoked.items() if other != name}
        return await self.save()

    async def save(self) -> bool:
        """Write what is known, unless the file holds it; return whether it does. A failure is logged and delays nothing further."""
        if self._file is None or not self._writable:
            return False
        file = self._file
        async with self._turn:
            if self._unread:
                await self._read(file)
            if self._unread:
                return False
            content = Content(version=1, delivered=tuple(sorted(self.delivered)), revoked=dict(sorted(self.revoked.items())))
            encoded = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
            if encoded == self._written:
                return True
            self._written = None
            try:
                await self._from_the_disk(lambda: file.write(encoded))
            except (OSError, TimeoutError) as error:
                if self._failure != (reason := _said(error)):
                    self._failure = reason
                    log.error("ledger.not_written", path=str(self._path), error=reason, remedy=NOT_WRITTEN)  # noqa: TRY400  # as above
                return False
            self._written = encoded
            if self._failure:
                self._failure = ""
                log.info("ledger.recovered", path=str(self._path))
            return True

    async def _from_the_disk(self, call: Callable[[], T]) -> T:
        """Raises TimeoutError, also while an earlier call has not come back from the disk."""
        if self._busy:
            raise TimeoutError
        self._busy = True

        def work() -> T:
            try:
                return call()
            finally:
                self._busy = False

        async with asyncio.timeout(DISK_TIMEOUT_SECONDS):
            return await in_thread("ledger", work)


def _parsed(text: bytes | None) -> Content:
    """Raises ValueError for what is not a ledger."""
    if not text:
        return Content(version=1)
    try:
        content = msgspec.json.decode(text, type=Content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("it is not a ledger") from None
    if content.version != 1:
        raise ValueError(f"it has version {content.version}, of another agent")
    if any(revocation.at.tzinfo is None for revocation in content.revoked.values()):
        raise ValueError("it is not a ledger: a time names no zone")
    sound = tuple(place for place in content.delivered if _is_sound(place))
    return Content(version=1, delivered=sound, revoked=content.revoked)


def _is_sound(place: Delivered) -> bool:
    """Whether it can be a place at all: what another wrote there must not end the agent."""
    try:
        length = len(os.fsencode(place.place))
    except UnicodeEncodeError:
        return False
    if not 0 < length <= MAX_PATH_BYTES or "\0" in place.place:
        return False
    return place.kind != "files" or place.place.startswith("/")


def _said(error: Exception) -> str:
    return "the disk has not answered" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
