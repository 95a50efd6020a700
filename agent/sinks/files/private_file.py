"""A small file of the agent's own that outlives it: mode 0600 from its first byte, replaced as a whole, kept by one process at a time."""

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from agent.sinks.files import atomic_writer, removal
from agent.sinks.files.atomic_writer import FileAttributes
from agent.sinks.files.lock import UNLOCKABLE

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
LOCK_ATTEMPTS = 5


class PrivateFile:
    """One path. Every method may raise OSError, and blocks on the disk."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._held = -1
        """The file's descriptor, with the lock; -1 while it is not held."""

    def read(self) -> bytes | None:
        """Return the content, None if there is no such file. Raises PermissionError if another could have written it."""
        try:
            fd = os.open(self._path, READ_FLAGS)
        except FileNotFoundError:
            return None
        try:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_nlink != 1 or seen.st_mode & 0o022:
                raise PermissionError(0, "it is not a file that only the agent can write")
            content = b""
            while chunk := os.read(fd, self._max_bytes + 1 - len(content)):
                content += chunk
        finally:
            os.close(fd)
        if len(content) > self._max_bytes:
            raise PermissionError(0, f"it is larger than {self._max_bytes} bytes")
        return content

    def hold(self) -> None:
        """Lock the file, made if need be, until `release`. Raises BlockingIOError if another process holds it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(LOCK_ATTEMPTS):
            fd = os.open(self._path, READ_FLAGS | os.O_CREAT, 0o600)
            try:
                _lock(fd)
                if _is(fd, self._path):
                    self._keep(fd)
                    return
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # replaced while it was being locked
        raise BlockingIOError(0, "another process keeps replacing it")

    def write(self, content: bytes) -> None:
        """Replace the content; a reader finds the old or the new. Keeps the lock, if it is held."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(self._path.parent, atomic_writer.DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
        temporary = f".{self._path.name}.tmp"
        try:
            removal.discard(directory, temporary)
            atomic_writer.create(directory, temporary, content, FileAttributes(mode=0o600), durable=True)
            fd = os.open(temporary, READ_FLAGS, dir_fd=directory)
            try:
                _lock(fd)
                os.rename(temporary, self._path.name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                os.close(fd)
                with suppress(OSError):
                    removal.discard(directory, temporary)
                raise
            self._keep(fd)
            atomic_writer.settle(directory)
        finally:
            os.close(directory)

    def release(self) -> None:
        """Let go of the lock; the file stays."""
        self._keep(-1)

    def _keep(self, fd: int) -> None:
        if self._held != -1:
            os.close(self._held)
        self._held = fd


def _lock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in UNLOCKABLE:
            raise


def _is(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
