"""A small file beside the generations that stays as it is: the authorization that a workload reads and the endpoint expects."""

import os
import stat

from agent.disk import atomic
from agent.disk.atomic import Look

LONGEST = 4096
"""Bytes."""
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def read(root: int, name: str) -> bytes | None:
    """What is kept there, if the agent wrote it and nobody else could have; None otherwise."""
    try:
        fd = os.open(name, READ_FLAGS, dir_fd=root)
    except OSError:
        return None
    try:
        seen = os.fstat(fd)
        own = stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid() and seen.st_nlink == 1 and not seen.st_mode & 0o022
        content = os.read(fd, LONGEST + 1) if own else b""
    finally:
        os.close(fd)
    return content if 0 < len(content) <= LONGEST else None


def keep(root: int, name: str, content: bytes, look: Look, *, durable: bool) -> None:
    """Makes it so, whole or not at all; touches nothing that is right already."""
    if read(root, name) == content and _looks(root, name, look):
        return
    temporary = f"..{name}_tmp"
    atomic.remove(root, temporary)
    atomic.create(root, temporary, content, look, durable=durable)
    os.rename(temporary, name, src_dir_fd=root, dst_dir_fd=root)


def _looks(root: int, name: str, look: Look) -> bool:
    seen = os.stat(name, dir_fd=root, follow_symlinks=False)
    return stat.S_IMODE(seen.st_mode) == look.mode and look.gid in {-1, seen.st_gid} and look.uid in {-1, seen.st_uid}
