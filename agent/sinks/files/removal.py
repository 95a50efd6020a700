"""Reads and removes directory entries within bounds. Every function works relative to a held descriptor and follows no link."""

import errno
import os
from collections.abc import Iterator

from agent.sinks.files.limits import EXHAUSTED, MAX_DEPTH, MAX_ENTRIES_REMOVED

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST})

Allowance = Iterator[int]
"""The entries inside directories that may still be removed; several removals can share one."""


def allowance() -> Allowance:
    """Return the allowance of one look at a directory."""
    return iter(range(MAX_ENTRIES_REMOVED))


def entries(directory: int) -> Iterator[os.DirEntry[str]]:
    """Yield the entries one by one, however many there are. Raise OSError."""
    with os.scandir(directory) as found:
        yield from found


def crowded(directory: int, most: int) -> bool:
    """Return whether there are more than `most` entries; reads no more than that. Raise OSError."""
    return any(number >= most for number, _ in enumerate(entries(directory)))


def discard(root: int, name: str) -> None:
    """Unlink a link or file, if it is there."""
    try:
        os.unlink(name, dir_fd=root)
    except FileNotFoundError:
        pass


def remove(root: int, name: str, left: Allowance | None = None) -> None:
    """Remove a link, a file, or a directory with its content, if it is there.

    Raises OSError, with ENOTEMPTY for a directory that is nested deeper than MAX_DEPTH or holds more than is `left`,
    by default MAX_ENTRIES_REMOVED: another call continues.
    """
    _remove(root, name, allowance() if left is None else left, MAX_DEPTH)


def _remove(parent: int, name: str, left: Allowance, levels: int) -> None:
    if _unlinked(parent, name):
        return
    if not levels:
        raise OSError(errno.ENOTEMPTY, f"more than {MAX_DEPTH} directories are nested in it", name)
    directory = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    try:
        for entry in entries(directory):
            if next(left, None) is None:
                raise OSError(errno.ENOTEMPTY, f"more than {MAX_ENTRIES_REMOVED} entries are in the way", name)
            _remove(directory, entry.name, left, levels - 1)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def _unlinked(parent: int, name: str) -> bool:
    """Remove what needs no descriptor to be removed; return False for a directory with content."""
    try:
        try:
            os.unlink(name, dir_fd=parent)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in OCCUPIED:
            raise
        return False
    return True


def vacate(root: int, usual: str, spare: str) -> str:
    """Return a free name: the usual one, or the spare where another user put something there that cannot be removed. Raise OSError."""
    try:
        remove(root, usual)
    except OSError as error:
        if error.errno in EXHAUSTED or error.errno == errno.EROFS:
            raise
        return spare
    return usual
