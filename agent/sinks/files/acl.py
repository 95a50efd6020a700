"""POSIX access control lists (ACLs): removed from everything that the agent makes, so that mode, owner and group say who reads it.

A directory's default ACL is inherited by what is made in it, and a later chmod widens the inherited entries again.
https://man7.org/linux/man-pages/man5/acl.5.html
"""

import errno
import os
from pathlib import Path

ACCESS = "system.posix_acl_access"
DEFAULT = "system.posix_acl_default"
ABSENT = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})
"""The ACL is missing, or the file system supports none."""


def present(thing: int | Path) -> bool:
    """Return whether a file or directory, by descriptor or path, has an ACL beyond its mode. Raise OSError."""
    return any(_has(thing, name) for name in (ACCESS, DEFAULT))


def strip(thing: int | Path) -> bool:
    """Remove the ACLs; return whether there were any. Only the owner may; raise OSError otherwise."""
    found = [name for name in (ACCESS, DEFAULT) if _has(thing, name)]
    for name in found:
        os.removexattr(thing, name)
    return bool(found)


def by_path_descriptor(fd: int) -> Path:
    """Return a path to what an O_PATH descriptor names: such a descriptor is refused by the calls for extended attributes."""
    return Path("/proc/self/fd", str(fd))


def _has(thing: int | Path, name: str) -> bool:
    try:
        os.getxattr(thing, name)
    except OSError as error:
        if error.errno in ABSENT:
            return False
        raise
    return True
