"""A small file beside the generations that stays as it is: the authorization that a workload reads and the endpoint expects."""

import os
import secrets
import stat

from agent.sinks.files import acl, atomic_writer, removal
from agent.sinks.files.atomic_writer import FileAttributes
from agent.sinks.files.limits import EXHAUSTED

MAX_SECRET_BYTES = 4096
"""Bytes."""
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def read(root: int, name: str) -> bytes | None:
    """Return what is kept there, if the agent wrote it, no other user could have, and no ACL lets more users read it than its mode.

    None otherwise. Raises OSError where the agent has no descriptors or memory left.
    """
    try:
        fd = os.open(name, READ_FLAGS, dir_fd=root)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None
    try:
        seen = os.fstat(fd)
        own = stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid() and seen.st_nlink == 1 and not seen.st_mode & 0o022
        own = own and not acl.present(fd)
        content = os.read(fd, MAX_SECRET_BYTES + 1) if own else b""
    finally:
        os.close(fd)
    return content if 0 < len(content) <= MAX_SECRET_BYTES else None


def keep(root: int, name: str, content: bytes, attributes: FileAttributes, *, durable: bool) -> None:
    """Makes it so, whole or not at all; touches nothing that is right already."""
    if read(root, name) == content and _looks(root, name, attributes):
        return
    temporary = removal.vacate(root, f"..{name}_tmp", f"..{secrets.token_hex(5)}_tmp")
    atomic_writer.create(root, temporary, content, attributes, durable=durable)
    os.rename(temporary, name, src_dir_fd=root, dst_dir_fd=root)


def _looks(root: int, name: str, attributes: FileAttributes) -> bool:
    seen = os.stat(name, dir_fd=root, follow_symlinks=False)
    return stat.S_IMODE(seen.st_mode) == attributes.mode and attributes.gid in {-1, seen.st_gid} and attributes.uid in {-1, seen.st_uid}
