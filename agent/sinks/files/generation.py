"""One generation as it lies on disk: read back, held against its manifest, vouched for, mended where only modes had drifted."""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from agent.sinks.files import acl, atomic_writer, removal
from agent.sinks.files.limits import EXHAUSTED, MAX_FILES
from agent.sinks.files.manifest import Manifest, parse, summary

MAX_FILE_BYTES = 1 << 20
"""Bytes of one file that are read back; the agent writes nothing near it."""
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""O_NONBLOCK: another user may have put a pipe there."""

Signature = tuple[tuple[str | int, ...], ...]
"""Values of `stat` of which one changes when a file is written to, replaced or given another owner."""


class Unusable(Exception):  # noqa: N818  # an expected result, not an error
    """Why a generation is not what it should be."""

    def __init__(self, reason: str, *, owner: str = "", other_settings: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.other_settings = other_settings
        """Whether it is this identity's, of settings that were changed since."""
        self.owner = owner
        """The other identity that it belongs to, where that is why."""


@dataclass(frozen=True, slots=True)
class Found:
    """A generation whose files are those that were written."""

    name: str
    manifest: Manifest
    contents: Mapping[str, bytes]
    """By name on disk; without the manifest."""


def inspect(root: int, name: str, *, identity: str, digest: str, manifest: str, uid: int = -1) -> Found:
    """Reads all of it. `manifest` is the file's name on disk, `uid` whose it has to be, by default this process's.

    Raises Unusable; PermissionError where the agent may not read it; other OSErrors where it has no descriptors or memory left.
    """
    try:
        with _entered(root, name) as directory:
            owner = os.fstat(directory).st_uid
            if owner != (os.geteuid() if uid == -1 else uid):
                raise Unusable(f"its directory belongs to uid {owner}")
            contents = {file: _content(directory, file) for file in _names(directory)}
    except PermissionError:
        raise
    except OSError as error:
        _raise_exhausted(error)
        raise Unusable(f"it cannot be read: {error.strerror}") from error
    described = parse(contents.pop(manifest, b""))
    if described is None:
        raise Unusable(f"it has no readable {manifest}")
    if described.identity != identity:
        raise Unusable(f"it is identity {described.identity!r}'s", owner=described.identity)
    if described.digest != digest:
        raise Unusable("the settings have changed since", other_settings=True)
    if {file: summary(content) for file, content in contents.items()} != described.files:
        raise Unusable("its files are not those that were written")
    return Found(name, described, contents)


def described(root: int, name: str, *, manifest: str) -> Manifest | None:
    """What a generation says of itself, true or not; None where it says nothing. Raises OSError as `inspect` does."""
    try:
        with _entered(root, name) as directory:
            return parse(_content(directory, manifest))
    except OSError as error:
        _raise_exhausted(error)
    except Unusable:
        pass
    return None


def content(root: int, name: str, file: str) -> bytes | None:
    """Return one file of a generation; None if it cannot be read. Raises OSError as `inspect` does."""
    try:
        with _entered(root, name) as directory:
            return _content(directory, file)
    except OSError as error:
        _raise_exhausted(error)
    except Unusable:
        pass
    return None


def signature(root: int, name: str) -> Signature | None:
    """Of the directory and each file in it; None where that cannot be told. Raises OSError as `inspect` does."""
    try:
        return tuple((*_identity(thing, seen), seen.st_mode, seen.st_uid, seen.st_gid) for thing, seen in _statuses(root, name).items())
    except OSError as error:
        _raise_exhausted(error)
    except Unusable:
        pass
    return None


def alterable(root: int, name: str) -> str:
    """Return why another user may have made or altered this; empty if none can have. Raises OSError, Unusable."""
    for thing, seen in {"the identity's directory": os.fstat(root), **_statuses(root, name)}.items():
        if seen.st_uid != os.geteuid():
            return f"{thing} belongs to uid {seen.st_uid}"
        if seen.st_mode & 0o022:
            return f"{thing} can be written by others (mode {stat.S_IMODE(seen.st_mode):04o})"
        if stat.S_ISREG(seen.st_mode) and seen.st_nlink != 1:
            return f"{thing} has another name elsewhere"
    return ""


def mend(root: int, name: str, attributes: atomic_writer.FileAttributes) -> bool:
    """Give directory and files back the modes and owners they were published with, without ACLs; return whether any had drifted.

    Raises OSError, Unusable.
    """
    expected_uid = os.geteuid() if attributes.uid == -1 else attributes.uid
    parent = os.fstat(root)
    inherited = parent.st_gid if parent.st_mode & stat.S_ISGID else os.getegid()
    expected_gid = inherited if attributes.gid == -1 else attributes.gid
    mended = False
    for thing, seen in _statuses(root, name).items():
        directory = stat.S_ISDIR(seen.st_mode)
        uid, mode = (os.geteuid(), attributes.directory_mode) if directory else (expected_uid, attributes.mode)
        mended |= _restore(root, name if directory else f"{name}/{thing}", seen, uid, expected_gid, mode)
    return mended


def _restore(root: int, path: str, seen: os.stat_result, uid: int, gid: int, mode: int) -> bool:
    """Return whether anything had to be changed.

    Works through a descriptor that needs no permission on the file itself, so mode 0000 does not prevent it either.
    """
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    try:
        now = os.fstat(fd)
        handle = acl.by_path_descriptor(fd)
        drifted = (now.st_uid, now.st_gid, now.st_mode & 0o777) != (uid, gid, mode)
        if not drifted and (stat.S_ISLNK(now.st_mode) or not acl.present(handle)):
            return False
        if (now.st_dev, now.st_ino) != (seen.st_dev, seen.st_ino) or (stat.S_ISREG(now.st_mode) and now.st_nlink != 1):
            raise PermissionError(errno.EPERM, "not the thing it was", path)
        if acl.strip(handle) or now.st_mode & 0o777 != mode:
            handle.chmod(mode | now.st_mode & stat.S_ISGID)
        if (now.st_uid, now.st_gid) != (uid, gid):
            os.chown(handle, uid, gid)
    finally:
        os.close(fd)
    return True


def _statuses(root: int, name: str) -> dict[str, os.stat_result]:
    with _entered(root, name) as directory:
        found = {file: os.stat(file, dir_fd=directory, follow_symlinks=False) for file in sorted(_names(directory))}
        return {name: os.fstat(directory), **found}


def _names(directory: int) -> list[str]:
    if removal.crowded(directory, MAX_FILES):
        raise Unusable("it holds more files than the agent writes")
    return [entry.name for entry in removal.entries(directory)]


def _raise_exhausted(error: OSError) -> None:
    if error.errno in EXHAUSTED:
        raise error


def _identity(thing: str, seen: os.stat_result) -> tuple[str | int, ...]:
    return thing, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_nlink


@contextmanager
def _entered(root: int, name: str) -> Iterator[int]:
    fd = os.open(name, atomic_writer.DIRECTORY_FLAGS, dir_fd=root)
    try:
        yield fd
    finally:
        os.close(fd)


def _content(directory: int, name: str) -> bytes:
    fd = os.open(name, READ_FLAGS, dir_fd=directory)
    with open(fd, "rb") as file:  # by descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unusable(f"{name} is not a file")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise Unusable(f"{name} is larger than the agent writes")
    return content
