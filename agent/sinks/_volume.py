"""The files sink's blocking half: one identity's directory, from grants to generations and back.

Runs in place or in a thread as `files.py` decides, never twice at a time.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog

from agent import atomic
from agent.atomic import Look
from agent.errors import NotReady, Rejected
from agent.model import Delivery
from agent.offload import memory_backed
from agent.place import Place
from agent.manifest import Manifest, parse, summary
from agent.toolbox import Toolbox


KEPT = 32
"""Replaced generations, at most, however young."""
LARGEST = 1 << 20
"""Bytes of a file that is read back; the agent writes nothing near it."""

log = structlog.get_logger()

Signature = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A generation read from the directory, hashes verified."""

    name: str
    manifest: Manifest
    contents: Mapping[str, bytes]
    """By name on disk; without the manifest."""


class Volume:
    """One identity's directory."""

    def __init__(self, path: str, identity: str, digest: str, manifest_name: str, toolbox: Toolbox) -> None:
        self.place = Place(path)
        self.grace = 30.0
        """Seconds that a replaced generation lives on."""
        self.look = Look(mode=0o640)
        self.memory: bool | None = None
        """Whether it lies in memory; None until it was looked at."""
        self._identity = identity
        self._digest = digest
        self._manifest_name = manifest_name
        self._toolbox = toolbox
        self._log = log.bind(identity=identity, sink=f"files:{path}")
        self._held_once = False
        self._governed = False
        self._live: tuple[str, int] | None = None
        self._replaced: dict[str, datetime] = {}
        self._verified: tuple[Signature, Manifest] | None = None

    def write(self, files: Mapping[str, bytes], manifest: Manifest) -> None:
        """Replaces what is there."""
        root = self._hold(create=True)
        assert root is not None  # noqa: S101  # it was to be made
        self._refuse_directories(root, [*files, self._manifest_name])
        previous = atomic.live(root)
        self._sweep(root, previous)
        manifest = replace_made(manifest, made=self.place.made or self._made_before(root, previous))
        whole = {**files, self._manifest_name: manifest.encode()}
        now = self._toolbox.clock.now()
        name = atomic.generation_name(now, f"{self._toolbox.random.getrandbits(40):010x}")
        atomic.stage(root, name, whole, self.look, now=now, durable=not self.memory)
        try:
            atomic.publish(root, name)
        except OSError:
            atomic.remove(root, name)
            raise
        self._live, self._verified = (name, manifest.generation), None
        if previous:
            self._replaced[previous] = now
        atomic.link(root, whole)
        atomic.unlink_stale(root, whole)
        if not self.memory:
            os.fsync(root)

    def read(self) -> Delivery | None:
        """What is there, repaired where only links, modes or owners had drifted."""
        root = self._hold(create=False)
        if root is None:
            return None
        name = atomic.live(root)
        self._sweep(root, name)
        if name is None:
            return None
        found = self._verify(root, name)
        if found is None:
            return None
        atomic.link(root, [*found.files, self._manifest_name])
        return found.delivery(self._live[1] if self._live and self._live[0] == name else 0)

    def adopt(self) -> Found | None:
        """The generation that an earlier process left, if every check holds."""
        root = self._hold(create=False)
        if root is None:
            return None
        name = atomic.live(root)
        self._sweep(root, name)
        if name is None:
            return None
        found, reason = self._inspect(root, name)
        reason = reason or self._writable_by_others(root, name)
        if reason or found is None:
            self._log.info("generation.refused", generation=name, reason=reason)
            return None
        atomic.link(root, [*found.manifest.files, self._manifest_name])
        return found

    def withdraw(self) -> None:
        """Takes away everything that was written here."""
        root = self.place.fd if self.place.fd != -1 else self._hold(create=False)
        if root is None:
            return
        made = self.place.made or self._made_before(root, atomic.live(root))
        atomic.clear(root)
        if made:
            self.place.remove()
        self.close()

    def close(self) -> None:
        self.place.release()
        self._live, self._verified, self._held_once = None, None, False
        self._replaced.clear()

    # -- holding ------------------------------------------------------------------------------------------------

    def _hold(self, *, create: bool) -> int | None:
        if self.place.fd != -1:
            if self.place.intact():
                self._govern(self.place.fd)
                return self.place.fd
            self._log.warning("directory.replaced", directory=self.place.path)
            self.place.release()
            self._live, self._verified = None, None
            self._replaced.clear()
            if not self._open(create=create, replaced=True):
                return None
            atomic.clear(self.place.fd)
        elif not self._open(create=create, replaced=False):
            return None
        root = self.place.fd
        self.memory = memory_backed(Path(self.place.path))
        self._governed = os.fstat(root).st_uid == os.geteuid() and (
            self.place.made or not atomic.foreign(root) or self._made_before(root, atomic.live(root))
        )
        self._govern(root)
        return root

    def _open(self, *, create: bool, replaced: bool) -> bool:
        try:
            return self.place.open(create=create, tolerated=self.look.uid)
        except BlockingIOError as error:
            if not replaced:
                raise Rejected(f"another agent or identity writes to {self.place.path}", remedy="give each its own directory") from error
            raise NotReady(f"another identity's directory lies at {self.place.path}", remedy="it is let go shortly") from error

    def _govern(self, root: int) -> None:
        """Mode and group of the directory itself, where it is ours: made here, or found with nothing foreign in it."""
        if not self._governed:
            return
        seen = os.fstat(root)
        if self.look.gid not in {-1, seen.st_gid}:
            os.chown(root, -1, self.look.gid)
        wanted = self.look.directory_mode | (stat.S_ISGID if self.place.parent_setgid else seen.st_mode & stat.S_ISGID)
        if stat.S_IMODE(seen.st_mode) != wanted:
            os.chmod(root, wanted)

    # -- looking ------------------------------------------------------------------------------------------------

    def _verify(self, root: int, name: str) -> Manifest | None:
        if self._verified and self._verified[0] == self._signature(root, name, self._verified[1]):
            return self._verified[1]
        found, reason = self._inspect(root, name)
        if found is None:
            self._verified = None
            self._log.info("generation.refused", generation=name, reason=reason)
            return None
        self._verified = (self._signature(root, name, found.manifest), found.manifest)
        return found.manifest

    def _signature(self, root: int, name: str, manifest: Manifest) -> Signature | None:
        try:
            seen = [os.stat(f"{name}/{file}", dir_fd=root, follow_symlinks=False) for file in (*manifest.files, self._manifest_name, ".")]
        except OSError:
            return None
        return name, *((s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in seen)

    def _inspect(self, root: int, name: str) -> tuple[Found | None, str]:
        """The generation and an empty reason, or None and the reason."""
        try:
            contents = _contents(root, name)
        except OSError as error:
            return None, f"cannot be read: {error.strerror}"
        manifest = parse(contents.pop(self._manifest_name, b""))
        if manifest is None:
            return None, f"no readable {self._manifest_name}"
        if manifest.identity != self._identity:
            return None, f"it is identity {manifest.identity}'s"
        if manifest.digest != self._digest:
            return None, "the settings have changed"
        if {file: summary(content) for file, content in contents.items()} != manifest.files:
            return None, "its files are not those that were written"
        return Found(name, manifest, contents), ""

    def _writable_by_others(self, root: int, name: str) -> str:
        """Why somebody else may have written this; empty where nobody can have."""
        seen = {"the directory": os.fstat(root), name: os.stat(name, dir_fd=root, follow_symlinks=False)}
        directory = os.open(name, atomic.DIRECTORY_FLAGS, dir_fd=root)
        try:
            seen |= {file: os.stat(file, dir_fd=directory, follow_symlinks=False) for file in os.listdir(directory)}
        finally:
            os.close(directory)
        for thing, status in seen.items():
            if status.st_uid != os.geteuid():
                return f"{thing} belongs to uid {status.st_uid}"
            if status.st_mode & 0o022:
                return f"{thing} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
            if stat.S_ISREG(status.st_mode) and status.st_nlink != 1:
                return f"{thing} has another name somewhere"
        return ""

    def _made_before(self, root: int, name: str | None) -> bool:
        found, _ = self._inspect(root, name) if name else (None, "")
        return found is not None and found.manifest.made_directory

    def _refuse_directories(self, root: int, names: list[str]) -> None:
        for name in (atomic.DATA, *names):
            try:
                mode = os.stat(name, dir_fd=root, follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(mode):
                raise Rejected(f"a directory lies at {self.place.path}/{name}, where the agent has to put a link", remedy="remove it")

    # -- sweeping -----------------------------------------------------------------------------------------------

    def _sweep(self, root: int, live: str | None) -> None:
        """Removes what a crash left and what was replaced longer ago than the grace."""
        now = self._toolbox.clock.now()
        atomic.discard(root, atomic.DATA_TEMPORARY)
        atomic.discard(root, atomic.LINK_TEMPORARY)
        ages = atomic.generations(root)
        order = sorted(ages, key=lambda name: (ages[name], name))
        kept: list[tuple[datetime, str]] = []
        for position, name in enumerate(order):
            successor = next(iter(order[position + 1 :]), "")
            if name == live:
                continue
            since = self._replaced.get(name)
            if since is None and live is not None and ages[name] <= ages[live] and successor:
                since = datetime.fromtimestamp(ages[successor] / 1e9, now.tzinfo)
            if since is None:
                atomic.remove(root, name)
                continue
            since = self._replaced[name] = min(since, now)
            kept.append((since, name))
        kept.sort()
        for index, (since, name) in enumerate(kept):
            if (now - since).total_seconds() >= self.grace or index < len(kept) - KEPT:
                atomic.remove(root, name)
                self._replaced.pop(name, None)


def replace_made(manifest: Manifest, *, made: bool) -> Manifest:
    """The manifest, saying whether the directory was made by the agent."""
    import msgspec

    return msgspec.structs.replace(manifest, made_directory=made)


def _contents(root: int, name: str) -> dict[str, bytes]:
    directory = os.open(name, atomic.DIRECTORY_FLAGS, dir_fd=root)
    try:
        return {file: _content(directory, file) for file in os.listdir(directory)}
    finally:
        os.close(directory)


def _content(directory: int, name: str) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with open(fd, "rb") as file:  # noqa: PTH123
        return file.read(LARGEST)
