"""Hardening at the start of the process: no process reads its memory, it leaves no core file, files do not run out."""

import ctypes
import resource

PR_SET_DUMPABLE = 4
"""prctl(2): with 0 there is no core dump, and no other process of the same user may attach."""


FILES = 65536
"""Files that may be open at a time. Many a system gives 1024, and allows more. Each connection is one too."""


def harden() -> None:
    """Does it, as far as this system lets it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    given, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if allowed == resource.RLIM_INFINITY else min(FILES, allowed)
    if given != resource.RLIM_INFINITY and given < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, allowed))
    try:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: there the limit has to do
