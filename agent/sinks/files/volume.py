"""The files sink's blocking half: one identity's directory, from files to generations and back.

Runs in place or in a thread, as `sink.py` decides, and never twice at a time. Raises Rejected, NotReady and plain OSErrors.
"""

import errno
import os
import stat
from collections.abc import Iterable, Mapping

from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from agent.errors import Rejected
from agent.model import Delivery
from agent.sinks.files import atomic_writer, generation, removal, secret_file
from agent.sinks.files.atomic_writer import FileAttributes
from agent.sinks.files.generation import Found, Signature, Unusable
from agent.sinks.files.limits import EXHAUSTED
from agent.sinks.files.managed_directory import ManagedDirectory
from agent.sinks.files.manifest import Manifest
from agent.sinks.files.retention import Retention
from agent.toolbox import Toolbox


class Volume:
    """One identity's directory."""

    def __init__(
        self,
        path: str,
        *,
        identity: str,
        digest: str,
        manifest: str,
        retention: Retention,
        toolbox: Toolbox,
        log: FilteringBoundLogger,
    ) -> None:
        self.managed = ManagedDirectory(path, identity=identity, manifest=manifest, random=toolbox.random, log=log)
        self.retained: dict[str, bytes] = {}
        """Files beside the generations, by name; written and mended with them."""
        self._identity = identity
        self._digest = digest
        self._manifest = manifest
        self._retention = retention
        self._toolbox = toolbox
        self._log = log
        self._written: tuple[str, Manifest, Signature | None] | None = None
        """The generation this process published last: its name, its manifest, how it looked then."""
        self._verified: tuple[Signature, Manifest] | None = None
        self._refused = ""

    def write(self, files: Mapping[str, bytes], manifest: Manifest, attributes: FileAttributes) -> None:
        """Replaces what is there; on failure what was there stays live."""
        root = self._hold(attributes, create=True)
        if root is None:
            raise FileNotFoundError(errno.ENOENT, "another process keeps removing it", self.managed.place.path)
        self._refuse_occupied(root, [*files, self._manifest])
        previous = atomic_writer.live(root)
        self._retention.sweep(root, previous, room=1)
        manifest = replace(manifest, made_directory=self.managed.made())
        whole = {**files, self._manifest: manifest.encode()}
        now = self._toolbox.clock.now()
        name = atomic_writer.generation_name(now, f"{self._toolbox.random.getrandbits(40):010x}")
        atomic_writer.stage(root, name, whole, attributes, now=now, durable=not self.managed.memory)
        try:
            atomic_writer.publish(root, name)
        except OSError:
            removal.remove(root, name)
            raise
        self._written, self._verified = (name, manifest, generation.signature(root, name)), None
        if previous:
            self._retention.replaced(previous)
        atomic_writer.link(root, whole)
        atomic_writer.unlink_stale(root, whole)
        self._retain(root, attributes)
        if not self.managed.memory:
            atomic_writer.settle(root)

    def read(self, attributes: FileAttributes) -> Delivery | None:
        """Return the delivery that is there; repair changed links, modes and owners."""
        found = self._attributes(attributes)
        if found is None:
            return None
        root, name = found
        try:
            manifest = self._verify(root, name, attributes)
        except Unusable as why:
            self._refuse(root, name, why)
            return None
        self._relink(root, manifest)
        self._retain(root, attributes)
        return manifest.delivery(manifest.generation if self._written and self._written[0] == name else 0)

    def adopt(self, attributes: FileAttributes) -> Found | None:
        """The generation that an earlier process left, if every check of it holds."""
        found = self._attributes(attributes)
        if found is None:
            return None
        root, name = found
        try:
            whole = self._inspect(root, name)
            alterable = generation.alterable(root, name)
        except PermissionError as error:
            whole, alterable = None, f"it cannot be read: {error.strerror}"
        except Unusable as why:
            self._refuse(root, name, why)
            return None
        if whole is None or alterable:
            self._refuse(root, name, Unusable(alterable))
            return None
        self._relink(root, whole.manifest)
        return whole

    def retain(self, attributes: FileAttributes) -> None:
        """Write the retained files, before any generation."""
        self.managed.beside |= self.retained.keys()
        root = self._hold(attributes, create=True)
        if root is not None:
            self._retain(root, attributes)

    def recall(self, name: str, attributes: FileAttributes) -> bytes | None:
        """Return what an earlier process retained under this name for this identity, unless another user could have written it."""
        self.managed.beside.add(name)
        root = self._hold(attributes, create=False)
        if root is None:
            return None
        live = atomic_writer.live(root)
        described = generation.described(root, live, manifest=self._manifest) if live else None
        return secret_file.read(root, name) if described is None or described.identity == self._identity else None

    def withdraw(self, attributes: FileAttributes, *, wholly: bool = True) -> None:
        """Takes away what was written here, wherever it has been moved to; the directory too, if it was made for it and is empty.

        Not `wholly`: what is retained stays.
        """
        place = self.managed.place
        root = place.fd if place.fd != -1 else self._hold(attributes, create=False)
        if root is None:
            return
        name = atomic_writer.live(root)
        described = generation.described(root, name, manifest=self._manifest) if name else None
        if described is None or described.identity == self._identity:
            made = self.managed.made()
            self.managed.clear(root, beside=wholly)
            place.empty()
            if made:
                place.remove()
        self.close()

    def close(self) -> None:
        """Close the directory."""
        self.managed.place.release()
        self._forget()

    def _hold(self, attributes: FileAttributes, *, create: bool) -> int | None:
        root, other = self.managed.hold(attributes, create=create)
        if other:
            self._forget()
        return root

    def _forget(self) -> None:
        self._written, self._verified, self._refused = None, None, ""
        self._retention.forget()

    def _attributes(self, attributes: FileAttributes) -> tuple[int, str] | None:
        """Directory and live generation, leftovers swept; None where there is none."""
        root = self._hold(attributes, create=False)
        if root is None:
            return None
        name = atomic_writer.live(root)
        self._retention.sweep(root, name)
        return (root, name) if name else None

    def _verify(self, root: int, name: str, attributes: FileAttributes) -> Manifest:
        """The manifest of a generation that is what it was when written; files are read again only if they may have changed."""
        seen = generation.signature(root, name)
        if seen and self._verified and self._verified[0] == seen:
            return self._verified[1]
        self._verified = None
        try:
            manifest = self._inspect(root, name).manifest
            mended = generation.mend(root, name, attributes)
        except PermissionError:
            manifest, mended = self._force(root, name, attributes)
        except OSError as error:
            _raise_exhausted(error)
            raise Unusable(f"it cannot be repaired: {error.strerror}") from error
        if mended:
            self._log.info("generation.mended", generation=name)
        if seen := generation.signature(root, name):
            self._verified = (seen, manifest)
        return manifest

    def _force(self, root: int, name: str, attributes: FileAttributes) -> tuple[Manifest, bool]:
        """For files whose modes do not let the agent read them: mended first, then read.

        An agent that may give a file to another owner, but then not read it, compares the signature only.
        """
        try:
            mended = generation.mend(root, name, attributes)
            return self._inspect(root, name).manifest, mended
        except OSError as error:
            _raise_exhausted(error)
            if self._written and self._written[0] == name and self._written[2] == generation.signature(root, name):
                return self._written[1], False
            raise Unusable(f"the agent may not read it: {error.strerror}") from error

    def _inspect(self, root: int, name: str) -> Found:
        return generation.inspect(root, name, identity=self._identity, digest=self._digest, manifest=self._manifest)

    def _refuse(self, root: int, name: str, why: Unusable) -> None:
        """Log once. If the generation belongs to another identity, remove it at once."""
        if self._refused != f"{name} {why.reason}":
            self._refused = f"{name} {why.reason}"
            self._log.info("generation.refused", generation=name, reason=why.reason)
        if why.owner:
            self.managed.clear(root)

    def _retain(self, root: int, attributes: FileAttributes) -> None:
        for name, content in self.retained.items():
            secret_file.keep(root, name, content, attributes, durable=not self.managed.memory)

    def _relink(self, root: int, manifest: Manifest) -> None:
        names = [*manifest.files, self._manifest]
        self._refuse_occupied(root, names)
        atomic_writer.link(root, names)

    def _refuse_occupied(self, root: int, names: Iterable[str]) -> None:
        """Raises Rejected where a link is wanted and something lies that cannot be replaced by one."""
        for name in (atomic_writer.DATA, *names):
            try:
                mode = os.stat(name, dir_fd=root, follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue
            where = f"{self.managed.place.path}/{name}"
            if stat.S_ISDIR(mode):
                raise Rejected(f"{where} is a directory, but a link must take its place", remedy="remove it")
            if not stat.S_ISLNK(mode) and self.managed.place.mounted(name):
                reason = f"a single file is mounted at {where}, and its readers would never see a swap"
                raise Rejected(reason, remedy="mount the whole directory, without subPath")


def _raise_exhausted(error: OSError) -> None:
    """Raise the error again unless it is about the files: the process or the system has no descriptor left."""
    if error.errno in EXHAUSTED:
        raise error
