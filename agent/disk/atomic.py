"""Whole-or-nothing sets of files in one directory, laid out as kubelet's AtomicWriter lays out a projected volume.

`..data` is a link to the live generation, a directory `..<UTC time>.<random>`; each file a person sees is a link
`token -> ..data/token`. A swap is one rename of `..data`. All of it happens relative to a held directory descriptor,
follows no link that is found there, and opens nothing for writing that it has not just made. Pure mechanics:
what the files mean is nobody's business here. Every function may raise OSError.
https://github.com/kubernetes/kubernetes/blob/master/pkg/volume/util/atomic_writer.go
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

DATA = "..data"
DATA_TEMPORARY = "..data_tmp"
LINK_TEMPORARY = "..link_tmp"
TEMPORARY = re.compile(r"\.\..+_tmp")
GENERATION = re.compile(r"\.\.[0-9]{4}(_[0-9]{2}){5}\.[0-9a-z]+", re.ASCII)
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Mode and owners that things have before anybody sees them; -1 leaves an owner as it comes."""

    mode: int
    """Of files."""
    uid: int = -1
    """Of files; directories stay the agent's own."""
    gid: int = -1
    """Of files and directories."""

    @property
    def directory_mode(self) -> int:
        """Who may read the files may enter; nobody else may ever write. A foreign owner enters as one of the others."""
        others = self.mode & 0o004 or self.uid not in {-1, os.geteuid()}
        return 0o700 | (0o050 if self.mode & 0o040 else 0) | (0o005 if others else 0)


def generation_name(now: datetime, suffix: str) -> str:
    """As kubelet names them."""
    return f"..{now.astimezone(UTC):%Y_%m_%d_%H_%M_%S}.{suffix}"


def stage(root: int, name: str, files: Mapping[str, bytes], look: Look, *, now: datetime, durable: bool) -> None:
    """A complete generation that nobody points to yet, or nothing: on failure what was made is removed.

    Its directory's mtime is `now`, by the caller's clock: after a restart the ages of generations are read from there.
    `durable` waits until the disk has each file and the directory.
    """
    os.mkdir(name, 0o700, dir_fd=root)
    try:
        directory = os.open(name, DIRECTORY_FLAGS, dir_fd=root)
        try:
            if os.fstat(directory).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "somebody else put a directory in the place of a new one", name)
            for file, content in files.items():
                create(directory, file, content, look, durable=durable)
            if look.gid != -1:
                os.fchown(directory, -1, look.gid)
            inherited = os.fstat(directory).st_mode & stat.S_ISGID
            os.fchmod(directory, look.directory_mode | inherited)
            moment = int(now.timestamp() * 1_000_000) * 1000
            os.utime(directory, ns=(moment, moment))
            if durable:
                settle(directory)
        finally:
            os.close(directory)
    except OSError:
        with suppress(OSError):  # the sweep takes what is left
            remove(root, name)
        raise


def create(directory: int, name: str, content: bytes, look: Look, *, durable: bool) -> None:
    """A new file with its final mode and owner from the start. Raises FileExistsError where there is one."""
    fd = os.open(name, CREATE_FLAGS, 0o600, dir_fd=directory)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fchmod(fd, look.mode)  # past the umask, and before the file is given away: afterwards it would take CAP_FOWNER
        if look.uid != -1 or look.gid != -1:
            os.fchown(fd, look.uid, look.gid)
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
    remove(root, DATA_TEMPORARY)
    os.symlink(name, DATA_TEMPORARY, dir_fd=root)
    try:
        os.rename(DATA_TEMPORARY, DATA, src_dir_fd=root, dst_dir_fd=root)
    except OSError:
        discard(root, DATA_TEMPORARY)
        raise


def live(root: int) -> str | None:
    """The generation that readers find; None where `..data` is missing or points to anything but a generation."""
    try:
        target = os.readlink(DATA, dir_fd=root)
    except FileNotFoundError:
        return None
    except OSError:  # not a link
        return None
    return target if GENERATION.fullmatch(target) else None


def generations(root: int) -> dict[str, int]:
    """All generations by name, each with its mtime in nanoseconds."""
    found = {}
    for name in os.listdir(root):
        if GENERATION.fullmatch(name):
            found[name] = os.stat(name, dir_fd=root, follow_symlinks=False).st_mtime_ns
    return found


def link(root: int, names: Iterable[str]) -> None:
    """Makes each user-visible link that is not as it should be, replacing a file or another link in one step."""
    for name in names:
        target = f"{DATA}/{name}"
        if _target(root, name) == target:
            continue
        remove(root, LINK_TEMPORARY)
        os.symlink(target, LINK_TEMPORARY, dir_fd=root)
        try:
            os.rename(LINK_TEMPORARY, name, src_dir_fd=root, dst_dir_fd=root)
        except OSError:
            discard(root, LINK_TEMPORARY)
            raise


def unlink_stale(root: int, names: Iterable[str]) -> None:
    """Removes user-visible links to files that are in no generation any more: all of ours but these."""
    wanted = set(names)
    for name in os.listdir(root):
        if name not in wanted and is_link_of_ours(root, name):
            os.unlink(name, dir_fd=root)


def is_link_of_ours(root: int, name: str) -> bool:
    """Whether this is a user-visible link as `link` makes them."""
    return _target(root, name) == f"{DATA}/{name}"


def foreign(root: int) -> list[str]:
    """Names of what lies in the directory and was not made here, as far as names tell."""
    return [name for name in os.listdir(root) if not name.startswith("..") and not is_link_of_ours(root, name)]


def clear(root: int) -> None:
    """Removes everything made here: first the one link that readers go through."""
    remove(root, DATA)
    unlink_stale(root, ())
    for name in os.listdir(root):
        if GENERATION.fullmatch(name) or TEMPORARY.fullmatch(name):
            remove(root, name)


def discard(root: int, name: str) -> None:
    """Unlinks a link or file, if it is there."""
    try:
        os.unlink(name, dir_fd=root)
    except FileNotFoundError:
        pass


def remove(root: int, name: str) -> None:
    """Removes a directory with all that is in it, or whatever else bears the name; follows no link; content to find nothing."""
    try:
        directory = os.open(name, DIRECTORY_FLAGS, dir_fd=root)
    except NotADirectoryError:
        discard(root, name)
        return
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ELOOP:  # a link
            raise
        discard(root, name)
        return
    try:
        for entry in os.listdir(directory):
            if stat.S_ISDIR(os.stat(entry, dir_fd=directory, follow_symlinks=False).st_mode):
                remove(directory, entry)
            else:
                discard(directory, entry)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=root)


def _target(root: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=root)
    except OSError:
        return None
