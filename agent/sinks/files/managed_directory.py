"""An identity's tenure of its directory: taken, kept in order, noticed when lost, and taken again.

Knows whose generations lie there only by their manifests, and believes none of them once the path has led elsewhere.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from random import Random

from structlog.typing import FilteringBoundLogger

from agent.errors import NotReady, Rejected
from agent.offload import memory_backed
from agent.sinks.files import acl, atomic_writer, generation, lock, removal
from agent.sinks.files.atomic_writer import FileAttributes
from agent.sinks.files.directory import Directory
from agent.sinks.files.limits import EXHAUSTED, MAX_ENTRIES_IN_PLACE


class ManagedDirectory:
    """Of one directory by one identity."""

    def __init__(self, path: str, *, identity: str, manifest: str, random: Random, log: FilteringBoundLogger) -> None:
        """`log` knows identity and sink."""
        self.place = Directory(path)
        self.memory: bool | None = None
        """Whether it is on a volume in memory; None before the first look."""
        self.beside: set[str] = set()
        """Names of files of the agent's that lie beside the generations."""
        self._identity = identity
        self._manifest = manifest
        self._random = random
        self._log = log
        self._distrusted = False
        """Whether the path led elsewhere when last looked at: nothing found there is ours until it was cleared."""
        self._unlocked = False
        """Whether it was reported that the directory cannot be locked."""
        self._governed = False
        """Whether mode and group of the directory itself are the agent's to set."""

    def hold(self, attributes: FileAttributes, *, create: bool) -> tuple[int | None, bool]:
        """The directory's descriptor (None where it is missing and not to be made), and whether it is another than last time.

        Raises Rejected, NotReady and OSErrors.
        """
        if self.place.fd != -1:
            if self.place.intact():
                self._govern(attributes)
                self._secure()
                return self.place.fd, False
            self._abandon()
        if not self._open(attributes, create=create):
            return None, True
        root = self.place.fd
        if self._distrusted:
            self.clear(root)
            self._distrusted = False
        self.memory = memory_backed(Path(self.place.path))
        self._governed = os.fstat(root).st_uid == os.geteuid() and (
            self.made() or all(name in self.beside for name in atomic_writer.foreign(root))
        )
        self._govern(attributes)
        self._secure()
        self._report()
        return root, True

    def quick(self) -> bool:
        """Return whether an operation is done in no time: the directory is held, is in memory, and holds few entries."""
        try:
            return bool(self.memory and self.place.fd != -1 and self.place.intact()) and not removal.crowded(
                self.place.fd, MAX_ENTRIES_IN_PLACE
            )
        except OSError:
            return False

    def clear(self, root: int, *, beside: bool = True) -> None:
        """Removes all that agents put into a directory, also beside the generations or not, and leaves what others did."""
        atomic_writer.clear(root)
        for name in self.beside if beside else ():
            removal.discard(root, name)

    def made(self) -> bool:
        """Whether the agent made the directory, now or in an earlier life."""
        if self.place.made:
            return True
        name = atomic_writer.live(self.place.fd)
        described = generation.described(self.place.fd, name, manifest=self._manifest) if name else None
        return described is not None and described.identity == self._identity and described.made_directory

    def _abandon(self) -> None:
        """Empty and close the held directory, which the path no longer leads to: a credential must not outlive its identity there."""
        self._log.warning("directory.replaced", directory=self.place.path)
        try:
            self.clear(self.place.fd)
            self.place.empty()
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise
            self._log.warning("directory.not_emptied", directory=self.place.path, error=error.strerror)
        self.place.release()
        self._distrusted = True

    def _secure(self) -> None:
        """Takes the lock where it could not be taken before, or where its file was removed since."""
        try:
            self.place.secure(self.place.fd)
        except BlockingIOError as error:
            raise self._occupied() from error
        if not self.place.lockable and not self._unlocked:
            self._log.warning("lock.refused", directory=self.place.path, remedy="make sure that no other agent writes there")
        self._unlocked = not self.place.lockable

    def _report(self) -> None:
        if self.place.contested:
            remedy = "find the process with `lslocks`; stop it if it is another agent"
            self._log.warning("lock.ignored", directory=self.place.path, remedy=remedy)
        if self.place.inherits:
            remedy = "let readers in by sinks[].mode, group or owner: the agent removes ACLs from what it makes"
            self._log.warning("acl.removed", directory=self.place.path, remedy=remedy)

    def _occupied(self) -> Rejected:
        reason = f"another agent or identity writes to {self.place.path}"
        return Rejected(reason, remedy="give each a directory of its own, and stop the other agent")

    def _open(self, attributes: FileAttributes, *, create: bool) -> bool:
        try:
            return self.place.open(create=create, tolerated=attributes.uid)
        except BlockingIOError as error:
            if not self._distrusted:
                raise self._occupied() from error
        with suppress(OSError):  # if it cannot be moved, its own sink closes it later
            self._set_aside()
        try:
            return self.place.open(create=create, tolerated=attributes.uid)
        except BlockingIOError as error:
            reason = f"a directory that is in use was put at {self.place.path}"
            raise NotReady(reason, remedy="wait: the process that holds it closes it shortly") from error

    def _set_aside(self) -> None:
        """Moves another identity's directory, put here behind our back and still held by its sink, out of the way and empties it.

        Its sink sees that its own path leads elsewhere and makes a new one.
        """
        name = f"..set-aside.{self._random.getrandbits(40):010x}"
        with self.place.peek() as root:
            found = atomic_writer.live(root)
            described = generation.described(root, found, manifest=self._manifest) if found else None
            if described is None or described.identity == self._identity or not self.place.set_aside(name, root):
                return
            self.clear(root)
            removal.discard(root, lock.NAME)
        self.place.discard_aside(name)

    def _govern(self, attributes: FileAttributes) -> None:
        """Sets mode and group of the directory itself, where it was made for this or held nothing foreign when it was found."""
        if not self._governed:
            return
        root = self.place.fd
        seen = os.fstat(root)
        stripped = acl.strip(root)
        if attributes.gid not in {-1, seen.st_gid}:
            os.fchown(root, -1, attributes.gid)
        wanted = attributes.directory_mode | (stat.S_ISGID if self.place.parent_setgid else seen.st_mode & stat.S_ISGID)
        if stripped or stat.S_IMODE(seen.st_mode) != wanted:
            os.fchmod(root, wanted)
