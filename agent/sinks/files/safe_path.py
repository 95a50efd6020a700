"""The way to a directory that the agent writes to: walked name by name, and no link followed that a stranger could have put there."""

import errno
import os
import stat
from collections import deque
from contextlib import suppress

from agent.errors import Rejected
from agent.sinks.files import atomic_writer
from agent.sinks.files.atomic_writer import DIRECTORY_FLAGS

LINKS = 40
"""Links on the way to a directory, at most; as many as Linux follows."""
WAY_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For directories on the way, which the agent may have leave to pass and not to list."""


def parent(path: str, *, create: bool) -> tuple[int, str]:
    """A descriptor of the parent directory (-1 where it is missing) and the name within it.

    Raises Rejected for a way that no agent should take, OSErrors as they come.
    """
    names = deque(part for part in path.split("/") if part)
    if not names:
        raise Rejected("an identity's files cannot be stored in the root directory", remedy="name a directory of its own")
    fd, seen, links = os.open("/", WAY_FLAGS), "/", 0
    try:
        while True:
            name = names.popleft()
            _refuse_generations(path, name)
            if not names:
                return fd, name
            following = _link(path, fd, name)
            if following is not None:
                links = _count(path, links)
                whole = os.path.normpath(os.path.join(seen, following))
                names.extendleft(reversed([part for part in whole.split("/") if part]))
                child, seen = os.open("/", WAY_FLAGS), "/"
            else:
                child = _child(fd, name, create=create)
                seen = f"{seen.rstrip('/')}/{name}"
            os.close(fd)
            fd = child
            if fd == -1:
                return -1, ""
    except BaseException:
        if fd != -1:
            os.close(fd)
        raise


def _refuse_generations(path: str, name: str) -> None:
    if name.startswith(".."):
        raise Rejected(f"{path} lies below {name}, inside another volume's generations", remedy="name a directory outside it")


def _count(path: str, links: int) -> int:
    if links == LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return links + 1


def _link(path: str, parent: int, name: str) -> str | None:
    """Return the target of a link on the way, or None if it is not a link. Raises Rejected if another user could have made it."""
    try:
        target = os.readlink(name, dir_fd=parent)
    except OSError:
        return None
    above, link = os.fstat(parent), os.stat(name, dir_fd=parent, follow_symlinks=False)
    mine = {0, os.geteuid()}
    open_to_others = above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX
    if link.st_uid not in mine or above.st_uid not in mine or open_to_others:
        reason = f"{name!r} on the way to {path} is a symbolic link that another user may have made"
        raise Rejected(reason, remedy="remove it, or set a directory with no link on the way")
    return target


def make(parent: int, name: str, mode: int) -> int:
    """Makes a directory; returns its descriptor.

    Raises Rejected where it, and the files in it, would inherit the group that a stranger chose; OSErrors.
    """
    above = os.fstat(parent)
    if above.st_mode & stat.S_ISGID and above.st_uid not in {0, os.geteuid()}:
        reason = f"{name!r} would get group {above.st_gid} from a directory with setgid that belongs to uid {above.st_uid}"
        raise Rejected(reason, remedy="let root or the agent own the directories on the way")
    return atomic_writer.make(parent, name, mode)


def _child(parent: int, name: str, *, create: bool) -> int:
    """A descriptor of a directory on the way, made if need be; -1 where it is missing and not to be made.

    Made ones are 0755 whatever the umask (they hold names, not secrets, and readers have to pass) and keep an inherited setgid.
    """
    try:
        return os.open(name, WAY_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            return -1
    try:
        fd = make(parent, name, 0o755)
    except FileExistsError:  # another identity's sink was faster
        return os.open(name, WAY_FLAGS, dir_fd=parent)
    try:
        settle(parent)
        found = os.fstat(fd)
        if found.st_mode & 0o777 != 0o755:
            os.fchmod(fd, 0o755 | found.st_mode & stat.S_ISGID)
    except OSError:
        os.close(fd)
        raise
    return fd


def settle(way: int) -> None:
    """Sync a new directory to the disk, if permitted: the directory above it is not the agent's."""
    with suppress(OSError):
        fd = os.open(".", DIRECTORY_FLAGS, dir_fd=way)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
