"""The lock of a directory's only writer: an flock on a file in it that only the agent's own user can open.

Every reader of a volume can lock a directory, also through a read-only mount, so a lock on the directory proves nothing.
Agents before this one locked the directory: they are still found, where /proc shows them.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path

from agent.sinks.files import atomic_writer, removal

NAME = "..lock"
MAX_ATTEMPTS = 8
"""Attempts to lock the file that the name leads to, while another user replaces it."""
FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MODE = atomic_writer.FileAttributes(mode=0o600)
UNLOCKABLE = frozenset({errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Answers of file systems without flock."""
OBSTACLES = frozenset({errno.ELOOP, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV})
"""Answers for a link, a directory, another user's file, a socket or a device in the file's place."""


class Lock:
    """Held from `take` to `release`."""

    def __init__(self) -> None:
        self._fd = -1

    def take(self, root: int) -> None:
        """Raise BlockingIOError where another writer holds it, other OSErrors where there is no file to lock."""
        for _ in range(MAX_ATTEMPTS):
            fd = _open(root)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                current = _is_current(root, fd)
            except BaseException:
                os.close(fd)
                raise
            if current:
                self.release()
                self._fd = fd
                return
            os.close(fd)
        raise PermissionError(errno.EPERM, "another user keeps replacing it", NAME)

    def held(self, root: int) -> bool:
        """Return whether the lock is held on the file that another agent would find. Raise OSError."""
        return self._fd != -1 and _is_current(root, self._fd)

    def release(self) -> None:
        """Unlock; the file stays for the next writer."""
        if self._fd != -1:
            os.close(self._fd)
        self._fd = -1


def locked_by_an_agent(directory: int) -> bool:
    """Return whether a process of this user or of root holds a lock on the directory itself; False where /proc does not say."""
    seen = os.fstat(directory)
    wanted = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    try:
        with Path("/proc/locks").open() as locks:
            holders = [fields[4] for fields in map(str.split, locks) if fields[1] == "FLOCK" and fields[5] == wanted]
    except (OSError, IndexError):
        return False
    return any(_user(pid) in {"0", str(os.geteuid())} for pid in holders)


def _open(root: int) -> int:
    """Return a descriptor of the file, made anew where it is missing or is not the agent's own."""
    try:
        fd = os.open(NAME, FLAGS, dir_fd=root)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in OBSTACLES:
            raise
        removal.remove(root, NAME)
    else:
        if _is_sound(os.fstat(fd)):
            return fd
        os.close(fd)
        removal.remove(root, NAME)
    try:
        atomic_writer.create(root, NAME, b"", MODE, durable=False)
    except FileExistsError:  # another agent was faster, or another user is in the way: the next attempt tells
        pass
    return os.open(NAME, FLAGS, dir_fd=root)


def _is_current(root: int, fd: int) -> bool:
    try:
        seen = os.stat(NAME, dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(seen, os.fstat(fd)) and _is_sound(seen)


def _is_sound(seen: os.stat_result) -> bool:
    """Return whether no other user can have opened the file, by this name or another one."""
    return stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid() and seen.st_nlink == 1 and not seen.st_mode & 0o077


def _user(pid: str) -> str:
    """Return the effective uid of a process; empty where that cannot be told. The owner of /proc/PID would be root's for every agent."""
    try:
        lines = Path("/proc", pid, "status").read_text().splitlines()
        return next(line.split()[2] for line in lines if line.startswith("Uid:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return ""
