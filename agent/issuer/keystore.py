"""The issuer's keys on disk: one PEM file for each, and an index that says which of them count and since when.

Whatever is not in the index does not exist, so each change is one rename: a PEM is durable before the index names it,
and leaves the index before it is unlinked. A process killed between any two steps leaves either the state before or
the one after, and at most a stray file that the next start removes. The index is never made anew where keys lie
without one: a new key in place of a lost one would break every token out there.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from agent.errors import ConfigError
from agent.issuer import index, keys
from agent.issuer.rotation import Term

INDEX = "index.json"
TEMPORARY = ".new"
KUBELETS = "..data"
"""Where the live generation is of a volume that the kubelet fills."""
LOCK_TIMEOUT_SECONDS = 0.5
"""An export, or a predecessor that is stopping, releases the lock sooner."""
MAX_FILE_BYTES = 1024 * 1024
"""No file of the agent comes near it."""

log = structlog.get_logger()


class KeyStore:
    """One directory, reached through one descriptor from `open` to `close`. Blocks on the disk: for a thread."""

    def __init__(self, state: Path, vet: Callable[[os.stat_result, str], None] | None = None, remedy: str = "") -> None:
        """For keys of another process: `vet` raises ConfigError for an untrusted file, `remedy` is that of a broken state."""
        self._state = state
        self._vet = vet
        self._remedy = remedy
        self._directory = -1
        self.writable = False
        """Whether this process holds the lock, and so may change anything."""
        self._looking = False

    def glance(self) -> list[tuple[Term, keys.SigningKey]]:
        """Return the keys without making, locking, repairing or removing anything.

        Raises ConfigError if the directory is missing or the state is not whole.
        """
        self._looking = True
        try:
            self._directory = self._enter()
            self._own(self._directory, str(self._state), 0o700)
            return self.load()
        except OSError as error:
            remedy = self._remedy or "start the agent, which makes it, or look as the agent's user"
            raise self._unusable(error.strerror or "an error", remedy) from error
        finally:
            self.close()
            self._looking = False

    def open(self, *, shared: bool = False) -> None:
        """Makes the directory where there is none, and takes its lock; `shared` does without where another has it.

        Raises ConfigError where the directory cannot be used, or another agent uses it.
        """
        try:
            if (self._state / KUBELETS).exists():
                raise self._unusable("only the kubelet writes there", "set issuer.readOnly: true, if these are the issuer's keys")
            self._make()
            self._directory = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._own(self._directory, str(self._state), 0o700)
            self._lock(timeout=0.0 if shared else LOCK_TIMEOUT_SECONDS)
        except BlockingIOError:
            if not shared:
                self.close()
                raise self._unusable("another agent uses it", "give each agent an issuer.state of its own, or stop the other one") from None
        except OSError as error:
            self.close()
            raise self._unusable(error.strerror or "an error", "set issuer.state to a directory this user may write") from error
        except ConfigError:
            self.close()
            raise

    def close(self) -> None:
        """Close the directory and release the lock."""
        if self._directory >= 0:
            os.close(self._directory)
        self._directory, self.writable = -1, False

    def load(self) -> list[tuple[Term, keys.SigningKey]]:
        """The keys in the order in which they sign; strays of an interrupted change are removed.

        Raises ConfigError where the state is not whole, naming the file.
        """
        present = os.listdir(self._directory)  # noqa: PTH208  # by descriptor, as everything here
        if INDEX not in present:
            if any(name.endswith(".pem") for name in present):
                raise self._broken(INDEX, "is missing, and keys are there")
            return []
        terms = self._terms()
        held = [(term, self._key(term.kid)) for term in terms]
        if self.writable:
            named = {_file(term.kid) for term in terms}
            for name in present:
                if name.startswith(TEMPORARY) or (name.endswith(".pem") and name not in named):
                    os.unlink(name, dir_fd=self._directory)
                    log.info("key.stray_removed", file=name)
        return held

    def add(self, key: keys.SigningKey, pem: bytes) -> None:
        """Makes a key durable that the index does not name yet."""
        if not self._exists(INDEX):
            self.index([])  # from here on, a key without an index is a loss and not a first start cut short
        self._write(_file(key.kid), pem)

    def index(self, terms: Sequence[Term]) -> None:
        """Replaces the index: from here on these keys exist, and no other."""
        self._write(INDEX, index.encode(terms))

    def remove(self, kid: str) -> None:
        """Deletes the PEM of a key that the index names no more."""
        self._remove(_file(kid))

    def _enter(self) -> int:
        """A descriptor of the directory; of the live generation, where the kubelet keeps it: all files are of one, and no links."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            return os.open(self._state / KUBELETS, flags)
        except (FileNotFoundError, NotADirectoryError):
            return os.open(self._state, flags)

    def _make(self) -> None:
        if not self._state.exists():
            self._state.parent.mkdir(parents=True, exist_ok=True)
            self._state.mkdir(mode=0o700, exist_ok=True)
            parent = os.open(self._state.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)

    def _lock(self, *, timeout: float) -> None:
        """Raises BlockingIOError where another process keeps the lock for longer than that."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(LOCK_TIMEOUT_SECONDS / 10)  # in a thread, and of the real time: the other process has no other
            else:
                self.writable = True
                return

    def _own(self, descriptor: int, name: str, mode: int) -> None:
        """Close a directory or file of the agent's to other users. Raises ConfigError if it is another user's."""
        if self._looking:
            if self._vet:
                self._vet(os.fstat(descriptor), name)
            return
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise ConfigError(
                f"issuer.state: {name} belongs to uid {found.st_uid}, the agent is uid {os.geteuid()}",
                remedy="set issuer.state to a directory of the agent's own, below the volume's root, in which only the agent can write",
            )
        if stat.S_IMODE(found.st_mode) & ~mode & 0o7077:
            os.fchmod(descriptor, mode)
            log.warning("key.mode_repaired", file=name, was=f"{stat.S_IMODE(found.st_mode):04o}", now=f"{mode:04o}")

    def _read(self, name: str) -> bytes:
        """Raises ConfigError: what the index or its reader counts on has to be there."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._directory)
            with open(descriptor, "rb") as file:  # noqa: PTH123
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise self._broken(name, "is not a regular file")
                self._own(descriptor, str(self._state / name), 0o600)
                return file.read(MAX_FILE_BYTES)
        except OSError as error:
            raise self._broken(name, f"cannot be read: {error.strerror}") from error

    def _terms(self) -> list[Term]:
        try:
            return index.decode(self._read(INDEX))
        except ValueError as error:
            raise self._broken(INDEX, str(error)) from None

    def _key(self, kid: str) -> keys.SigningKey:
        try:
            key = keys.parse(self._read(_file(kid)))
        except ValueError as error:
            raise self._broken(_file(kid), f"is {error}") from None
        if key.kid != kid:
            raise self._broken(_file(kid), "holds another key than its name says")
        return key

    def _exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._directory)
        except FileNotFoundError:
            pass

    def _write(self, name: str, data: bytes) -> None:
        """Whole or not at all, and durable on return. Raises OSError."""
        temporary = TEMPORARY + name
        self._remove(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=self._directory)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError:
            self._remove(temporary)  # half a file on a full disk
            raise
        os.fsync(self._directory)

    def _unusable(self, why: str, remedy: str) -> ConfigError:
        return ConfigError(f"issuer.state: cannot use {self._state}: {why}", remedy=remedy)

    def _broken(self, name: str, why: str) -> ConfigError:
        return ConfigError(
            f"issuer.state: {self._state / name} {why}",
            remedy=self._remedy
            or "restore the directory from a backup; or, accepting that every token signed so far stops verifying, empty it",
        )


def _file(kid: str) -> str:
    """A name that does not begin with the `-` that a kid may begin with."""
    return f"key-{kid}.pem"
