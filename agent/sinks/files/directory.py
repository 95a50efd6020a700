"""One directory that the agent writes to: found or made without following anybody's link, held by a descriptor, locked.

In an emptyDir any uid may rename what it likes, so the path proves nothing: what counts is the inode that was opened,
and whether the path still leads to it. `lock.py` has the lock.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import Rejected
from agent.sinks.files import acl, removal, safe_path
from agent.sinks.files.atomic_writer import DIRECTORY_FLAGS
from agent.sinks.files.lock import NAME, OBSTACLES, UNLOCKABLE, Lock, locked_by_an_agent

POSTPONED = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT})
"""Why no lock file can be made now; nothing can be written then either, and the writer says so."""


class Directory:
    """A directory by its path. `fd` is -1 while it is not held."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.made = False
        """Whether it was made here."""
        self.parent_setgid = False
        """Whether what is made beside it inherits the group, as under an fsGroup."""
        self.lockable = True
        """Whether other writers are kept out, or will be once the volume takes a file."""
        self.contested = False
        """Whether a process that is not known to be an agent holds a lock on the directory itself."""
        self.inherits = False
        """Whether what is made at the path would inherit an access control list."""
        self._lock = Lock()

    def intact(self) -> bool:
        """Whether the path still leads to the directory that is held."""
        try:
            seen, held = os.lstat(self.path), os.fstat(self.fd)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (seen.st_dev, seen.st_ino) == (held.st_dev, held.st_ino)

    def open(self, *, create: bool, tolerated: int = -1) -> bool:
        """Holds and locks it; False where it is missing and not to be made.

        `tolerated`: an owner that is as good as the agent itself. Raises Rejected for what no agent should write to,
        BlockingIOError where another writer holds the lock, other OSErrors as they come.
        """
        parent, name = safe_path.parent(self.path, create=create)
        if parent == -1:
            return False
        try:
            self.parent_setgid = bool(os.fstat(parent).st_mode & stat.S_ISGID)
            self.inherits = acl.present(acl.by_path_descriptor(parent))
            fd = self._enter(parent, name, create=create, tolerated=tolerated)
        finally:
            os.close(parent)
        if fd == -1:
            return False
        try:
            self._vet(os.fstat(fd), tolerated)
            self.secure(fd)
            self._announce(fd)
        except BaseException:
            self._lock.release()
            os.close(fd)
            raise
        self.fd = fd
        return True

    def secure(self, fd: int) -> None:
        """Takes the lock, unless it is held. Raises BlockingIOError where another writer holds it, OSErrors."""
        if self._lock.held(fd):
            return
        try:
            self._lock.take(fd)
            self.lockable = True
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in POSTPONED | UNLOCKABLE | OBSTACLES | {errno.ENOTEMPTY}:
                raise
            self.lockable = error.errno in POSTPONED

    def empty(self) -> None:
        """Takes the lock's file away too, where nothing of the agent's is to stay. Raises OSErrors."""
        removal.discard(self.fd, NAME)
        self._lock.release()

    def release(self) -> None:
        """Lets go of descriptor and lock."""
        self._lock.release()
        if self.fd != -1:
            os.close(self.fd)
        self.fd, self.made = -1, False

    @contextmanager
    def peek(self) -> Iterator[int]:
        """A descriptor of what lies at the path now, neither held nor locked. Raises Rejected for a stranger's directory."""
        fd = os.open(self.path, DIRECTORY_FLAGS)
        try:
            self._vet(os.fstat(fd), -1)
            yield fd
        finally:
            os.close(fd)

    def set_aside(self, name: str, expected: int) -> bool:
        """Renames the directory at the path to another name beside it, if it is the expected one; whether it was."""
        parent, current = safe_path.parent(self.path, create=False)
        try:
            if parent == -1 or not os.path.samestat(os.stat(current, dir_fd=parent, follow_symlinks=False), os.fstat(expected)):
                return False
            os.rename(current, name, src_dir_fd=parent, dst_dir_fd=parent)
            return True
        finally:
            if parent != -1:
                os.close(parent)

    def discard_aside(self, name: str) -> None:
        """Removes what was set aside, if it is empty."""
        parent, _ = safe_path.parent(self.path, create=False)
        try:
            if parent != -1:
                os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
                raise
        finally:
            if parent != -1:
                os.close(parent)

    def mounted(self, name: str) -> bool:
        """Whether something is mounted on this entry; False where that cannot be told."""
        wanted = f"{self.path}/{name}".replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011").replace("\n", "\\012")
        try:
            return any(line.split()[4] == wanted for line in Path("/proc/self/mountinfo").read_text().splitlines())
        except (OSError, IndexError):
            return False

    def remove(self) -> None:
        """Removes the directory, if it is empty and still the one that is held."""
        if self.intact():
            try:
                Path(self.path).rmdir()
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS}:
                    raise

    def _enter(self, parent: int, name: str, *, create: bool, tolerated: int) -> int:
        for _ in range(3):
            try:
                return os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
            except FileNotFoundError:
                if not create:
                    return -1
            except PermissionError:
                self._vet(os.stat(name, dir_fd=parent, follow_symlinks=False), tolerated)  # whose it is says more
                raise
            except OSError as error:
                if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                    raise
                kind = stat.S_IFMT(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
                if kind == stat.S_IFLNK:
                    reason, remedy = "a symbolic link", "remove it, and the agent makes a directory; or name the one that it leads to"
                else:
                    reason, remedy = "no directory", "name a directory; a mount of a single file would never see a swap"
                raise Rejected(f"{self.path} is {reason}", remedy=remedy) from error
            try:
                fd = safe_path.make(parent, name, 0o700)
            except FileExistsError:
                continue
            self.made = True
            safe_path.settle(parent)
            return fd
        raise FileNotFoundError(errno.ENOENT, "another process keeps removing it", self.path)

    def _vet(self, found: os.stat_result, tolerated: int) -> None:
        if found.st_uid not in {os.geteuid(), 0, tolerated}:
            reason = f"{self.path} belongs to uid {found.st_uid}, who could replace whatever the agent writes there"
            raise Rejected(reason, remedy=f"remove it and let the agent make it, or chown it to uid {os.geteuid()}")

    def _announce(self, fd: int) -> None:
        """Locks the directory itself too: earlier agents know no other lock, and this one yields to them.

        Every reader can hold such a lock, so that one of an unknown process is only noted.
        """
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.contested = False
        except BlockingIOError:
            if locked_by_an_agent(fd):
                raise
            self.contested = True
        except OSError as error:
            if error.errno not in UNLOCKABLE:
                raise
