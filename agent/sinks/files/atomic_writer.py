"""Whole-or-nothing sets of files in one directory, laid out as kubelet's AtomicWriter lays out a projected volume.

`..data` is a link to the live generation, a directory `..<UTC time>.<random>`; each file a person sees is a link
`token -> ..data/token`. A swap is one rename of `..data`. All of it happens relative to a held directory descriptor,
follows no link that is found there, and opens nothing for writing that it has not just made. Pure mechanics:
this module does not know what the files mean. Every function may raise OSError.
https://github.com/kubernetes/kubernetes/blob/master/pkg/volume/util/atomic_writer.go
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from agent.sinks.files import acl, removal
from agent.sinks.files.limits import EXHAUSTED

DATA = "..data"
DATA_TEMPORARY = "..data_tmp"
LINK_TEMPORARY = "..link_tmp"
TEMPORARY = re.compile(r"\.\..+_tmp")
GENERATION = re.compile(r"\.\.[0-9]{4}(_[0-9]{2}){5}\.[0-9a-z]+", re.ASCII)
DIRECTORY_FLAGS = removal.DIRECTORY_FLAGS
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAttributes:
    """Mode and owners that things have before anybody sees them; -1 leaves an owner as it comes."""

    mode: int
    """Of files."""
    uid: int = -1
    """Of files; directories stay the agent's own."""
    gid: int = -1
    """Of files and directories."""

    @property
    def directory_mode(self) -> int:
        """Readers of the files may enter; only the owner may write. An owner other than the agent enters as one of the others."""
        others = self.mode & 0o004 or self.uid not in {-1, os.geteuid()}
        return 0o700 | (0o050 if self.mode & 0o040 else 0) | (0o005 if others else 0)


def generation_name(now: datetime, suffix: str) -> str:
    """As kubelet names them."""
    return f"..{now.astimezone(UTC):%Y_%m_%d_%H_%M_%S}.{suffix}"


def stage(root: int, name: str, files: Mapping[str, bytes], attributes: FileAttributes, *, now: datetime, durable: bool) -> None:
    """Write a complete generation that no link points to yet; on failure remove what was written.

    Its directory's mtime is `now`, by the caller's clock: after a restart the ages of generations are read from there.
    `durable` waits until the disk has each file and the directory.
    """
    directory = make(root, name, 0o700)
    try:
        try:
            for file, content in files.items():
                create(directory, file, content, attributes, durable=durable)
            if attributes.gid != -1:
                os.fchown(directory, -1, attributes.gid)
            inherited = os.fstat(directory).st_mode & stat.S_ISGID
            os.fchmod(directory, attributes.directory_mode | inherited)
            moment = int(now.timestamp() * 1_000_000) * 1000
            os.utime(directory, ns=(moment, moment))
            if durable:
                settle(directory)
        finally:
            os.close(directory)
    except OSError:
        with suppress(OSError):  # the sweep takes what is left
            removal.remove(root, name)
        raise


def make(parent: int, name: str, mode: int) -> int:
    """Make a directory of the agent's own, without any ACL that it would inherit; return its descriptor.

    Raises OSErrors; PermissionError where another user replaced it meanwhile.
    """
    os.mkdir(name, mode, dir_fd=parent)
    try:
        fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    except PermissionError:  # an inherited ACL can deny the owner too
        _admit_owner(parent, name)
        fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    try:
        _refuse_replaced(fd, name)
        if acl.strip(fd):  # what it allowed the group and others goes with it
            os.fchmod(fd, mode | os.fstat(fd).st_mode & stat.S_ISGID)
    except OSError:
        os.close(fd)
        raise
    return fd


def create(directory: int, name: str, content: bytes, attributes: FileAttributes, *, durable: bool) -> None:
    """A new file with its final mode and owner from the start. Raises FileExistsError where there is one."""
    fd = os.open(name, CREATE_FLAGS, 0o600, dir_fd=directory)
    try:
        acl.strip(fd)  # before the mode: with an inherited ACL, the mode's group bits are what that ACL may allow
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fchmod(fd, attributes.mode)  # past the umask, and before the file is given away: afterwards it would take CAP_FOWNER
        if attributes.uid != -1 or attributes.gid != -1:
            os.fchown(fd, attributes.uid, attributes.gid)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def settle(directory: int) -> None:
    """Waits until the disk has a directory's entries; some network file systems cannot say, and need no waiting for."""
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
            raise


def publish(root: int, name: str) -> None:
    """The swap: from here on readers find this generation. On failure it is as before, and the generation is still there."""
    _replace(root, DATA, name, DATA_TEMPORARY)


def live(root: int) -> str | None:
    """The generation that readers find; None where `..data` is missing or points to anything but a generation."""
    try:
        target = os.readlink(DATA, dir_fd=root)
    except FileNotFoundError:
        return None
    except OSError:  # not a link
        return None
    return target if GENERATION.fullmatch(target) else None


def machinery(root: int, *, most: int | None = None) -> Iterator[tuple[str, os.stat_result]]:
    """Yield generations and temporary entries, among the first `most` entries of the directory or all of them."""
    for entry in islice(removal.entries(root), most):
        if GENERATION.fullmatch(entry.name) or TEMPORARY.fullmatch(entry.name):
            with suppress(FileNotFoundError):
                yield entry.name, entry.stat(follow_symlinks=False)


def link(root: int, names: Iterable[str]) -> None:
    """Makes each user-visible link that is not as it should be, replacing a file or another link in one step."""
    for name in names:
        if not is_link_of_ours(root, name):
            _replace(root, name, f"{DATA}/{name}", LINK_TEMPORARY)


def unlink_stale(root: int, names: Iterable[str]) -> None:
    """Removes user-visible links to files that are in no generation any more: all of ours but these."""
    wanted = set(names)
    for entry in removal.entries(root):
        if entry.name not in wanted and entry.is_symlink() and is_link_of_ours(root, entry.name):
            removal.discard(root, entry.name)


def is_link_of_ours(root: int, name: str) -> bool:
    """Whether this is a user-visible link as `link` makes them."""
    return _target(root, name) == f"{DATA}/{name}"


def foreign(root: int) -> Iterator[str]:
    """Yield names of what is in the directory and was not made here, as far as names tell."""
    return (entry.name for entry in removal.entries(root) if not entry.name.startswith("..") and not is_link_of_ours(root, entry.name))


def clear(root: int) -> None:
    """Remove everything made here: first the one link that readers go through.

    Entries of another user that the agent cannot remove stay, and do not stop the removal of others. Raises OSError if anything
    of the agent's own stays.
    """
    kept: OSError | None = None
    for name in _to_clear(root):
        try:
            removal.remove(root, name)
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise
            if _is_own(root, name):
                kept = kept or error
    if kept:
        raise kept


def _to_clear(root: int) -> Iterator[str]:
    yield DATA
    for entry in removal.entries(root):
        if entry.is_symlink() and is_link_of_ours(root, entry.name):
            yield entry.name
    for entry in removal.entries(root):
        if GENERATION.fullmatch(entry.name) or TEMPORARY.fullmatch(entry.name):
            yield entry.name


def _is_own(root: int, name: str) -> bool:
    try:
        return os.stat(name, dir_fd=root, follow_symlinks=False).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _replace(root: int, name: str, target: str, temporary: str) -> None:
    """Make a link in one step, whatever file or link bears the name."""
    free = removal.vacate(root, temporary, f"..{secrets.token_hex(5)}_tmp")
    os.symlink(target, free, dir_fd=root)
    try:
        os.rename(free, name, src_dir_fd=root, dst_dir_fd=root)
    except OSError:
        removal.discard(root, free)
        raise


def _target(root: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=root)
    except OSError:
        return None


def _admit_owner(parent: int, name: str) -> None:
    """Give the owner's permissions back to a directory that was just made, through a descriptor that needs none."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        _refuse_replaced(fd, name)
        acl.by_path_descriptor(fd).chmod(0o700)
    finally:
        os.close(fd)


def _refuse_replaced(fd: int, name: str) -> None:
    if os.fstat(fd).st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "another user put a directory in the place of a new one", name)
