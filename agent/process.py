"""What the process does to itself before anything else: nobody may read its memory, and it leaves no core file."""

import ctypes
import resource

PR_SET_DUMPABLE = 4
"""prctl(2): with 0 there is no core dump, and no other process of the same user may attach."""


def harden() -> None:
    """Does it, as far as this system lets it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: there the limit has to do
