"""Removes what an earlier process left of an identity that is no longer delivered there, and nothing else.

The path comes from the ledger, and a forged ledger could name any directory. So only a generation goes whose manifest names the
identity, whose directory the agent's uid owns, and which others cannot write to; no mode, owner or lock file is touched.
Every function may raise OSError, and blocks on the disk.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from agent.sinks.files import atomic_writer, generation, lock, removal, safe_path, secret_file
from agent.sinks.files.lock import Lock
from agent.sinks.files.manifest import NAME, Manifest


def remove(path: str, identity: str, *, beside: str, is_identitys: Callable[[bytes], bool]) -> bool:
    """Remove the identity's generations, their links, and the file `beside` them if `is_identitys`; return whether anything went.

    The directory goes too, if the agent made it and it is empty. Raises BlockingIOError if a sink holds the directory, Rejected
    for a path on which another could have put a link.
    """
    parent, name = safe_path.parent(path, create=False)
    if parent == -1:
        return False
    try:
        root = _entered(parent, name)
        if root == -1:
            return False
        try:
            ours = [name for name, _ in atomic_writer.machinery(root) if _is_identitys(root, name, identity)]
            kept = secret_file.read(root, beside)
            beside_is = kept is not None and is_identitys(kept)
            if not ours and not beside_is:
                return False
            made = any(found.made_directory for name in ours if (found := generation.described(root, name, manifest=NAME)))
            with _locked(root):
                _clear(root, ours)
                if beside_is:
                    removal.discard(root, beside)
                removal.discard(root, lock.NAME)
            if made:
                with suppress(OSError):  # it is not empty, or a mount
                    os.rmdir(name, dir_fd=parent)
        finally:
            os.close(root)
    finally:
        os.close(parent)
    return True


def held(path: str, identity: str, manifest: str, token: str) -> tuple[Manifest, bytes | None] | None:
    """Return manifest and token of the identity's live generation, whatever settings it was written under; None if there is none.

    `manifest`, `token`: names of these two files on disk. Raises Rejected as `remove`.
    """
    parent, name = safe_path.parent(path, create=False)
    if parent == -1:
        return None
    try:
        root = _entered(parent, name)
        if root == -1:
            return None
        try:
            live = atomic_writer.live(root)
            if not live or not _is_identitys(root, live, identity, manifest):
                return None
            described = generation.described(root, live, manifest=manifest)
            return (described, generation.content(root, live, token)) if described else None
        finally:
            os.close(root)
    finally:
        os.close(parent)


def _clear(root: int, ours: Sequence[str]) -> None:
    if atomic_writer.live(root) in ours:
        removal.discard(root, atomic_writer.DATA)  # first the one link that readers go through
        atomic_writer.unlink_stale(root, ())
    for name in ours:
        removal.remove(root, name)


def _is_identitys(root: int, name: str, identity: str, manifest: str = NAME) -> bool:
    if not atomic_writer.GENERATION.fullmatch(name):
        return False
    seen = os.stat(name, dir_fd=root, follow_symlinks=False)
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        return False
    described = generation.described(root, name, manifest=manifest)
    return described is not None and described.identity == identity


def _entered(parent: int, name: str) -> int:
    """A descriptor of the directory; -1 if there is none, or something else is in its place."""
    try:
        return os.open(name, atomic_writer.DIRECTORY_FLAGS, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        return -1
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link
            return -1
        raise


@contextmanager
def _locked(root: int) -> Iterator[None]:
    """Keep other writers away; the lock is a file, so only where something is the identity's. Raises BlockingIOError if a sink holds it."""
    held = Lock()
    try:
        held.take(root)
    except OSError as error:
        if error.errno not in lock.UNLOCKABLE:
            raise
    try:
        yield
    finally:
        held.release()
