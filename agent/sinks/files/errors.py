"""Sort failed system calls on a volume by reaction, each with a remedy."""

import errno
import os

from agent.errors import RefreshError, Rejected, Unavailable

PERSON = {
    errno.EROFS: "mount the volume writable in the agent's container; only the workload's mount should be readOnly",
    errno.EACCES: "make the parent directory writable for the agent, in a pod by fsGroup",
    errno.EPERM: "let the agent make the directory itself, or own it",
    errno.ENOTDIR: "name a directory",
    errno.EISDIR: "remove the directory: a file or link must take its place",
    errno.ELOOP: "name a directory that is reached without symbolic links of other users",
    errno.ENAMETOOLONG: "use shorter names",
    errno.EBUSY: "mount the whole directory: a mount of a single file never sees a swap",
    errno.EXDEV: "mount the whole directory: a mount of a single file never sees a swap",
    errno.EINVAL: "use a volume that supports symbolic links and modes",
    errno.EOPNOTSUPP: "use a volume that supports symbolic links and modes",
}
"""A person has to change something."""
PASSING = {
    errno.ENOSPC: "free space, or give the volume a larger size",
    errno.EDQUOT: "free space, or raise the quota",
    errno.ENOENT: "wait: another process removed it, and the agent makes it again",
    errno.EMFILE: "raise the limit of open files",
    errno.ENFILE: "raise the limit of open files",
    errno.ESTALE: "check the file server",
    errno.EIO: "check the disk",
}
"""May pass by itself, or by a change elsewhere; so may every error that neither table names."""


def sort(error: OSError, *, identity: str, attempt: str) -> RefreshError:
    """Return the failure by its reaction. `attempt`: the operation and its path, such as `write to /run/wi/app`."""
    number = error.errno or 0
    text = (
        f"{identity}: cannot {attempt}: {os.strerror(number) if number else type(error).__name__} ({errno.errorcode.get(number, number)})"
    )
    if number in PERSON:
        return Rejected(text, remedy=PERSON[number])
    return Unavailable(text, remedy=PASSING.get(number, "look at the volume"))
