"""Which mode and owners the files get, from what the operator wrote; refused where the agent may not give them away.

The capability counts, not the uid: a container's root often lacks CAP_CHOWN, and a plain uid may have it.
"""

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

from agent.errors import Rejected
from agent.sinks.files.atomic_writer import FileAttributes

CAP_CHOWN = 1 << 0
"""https://man7.org/linux/man-pages/man7/capabilities.7.html"""


def resolve(*, mode: int, owner: str | int | None, group: str | int | None) -> FileAttributes:
    """Looks names up and checks what the agent may do. Raises Rejected."""
    uid, gid = -1, -1
    if owner is not None:
        uid = _number("owner", owner, lambda name: pwd.getpwnam(name).pw_uid)
        if uid != os.geteuid() and not may_chown():
            reason = f"owner {owner} is not the agent (uid {os.geteuid()}), and the agent has no CAP_CHOWN to give files away"
            raise Rejected(reason, remedy="run the agent as that uid, use `group` or fsGroup, or add the capability CHOWN")
    if group is not None:
        gid = _number("group", group, lambda name: grp.getgrnam(name).gr_gid)
        mine = {os.getegid(), *os.getgroups()}
        if gid not in mine and not may_chown():
            reason = f"group {group} is not one of the agent's ({', '.join(map(str, sorted(mine)))}), and the agent lacks CAP_CHOWN"
            raise Rejected(reason, remedy="add it to the agent's groups, in a pod by fsGroup or supplementalGroups")
    return FileAttributes(mode=mode, uid=uid, gid=gid)


def may_chown() -> bool:
    """Whether CAP_CHOWN is in effect; False where that cannot be told."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) & CAP_CHOWN)
    except (OSError, ValueError, IndexError):
        pass
    return False


def _number(what: str, given: str | int, look_up: Callable[[str], int]) -> int:
    if isinstance(given, int):
        number = given
    else:
        try:
            return look_up(given)
        except KeyError:
            if not given.isdecimal():
                raise Rejected(f"there is no {what} {given!r} here", remedy="write its number: images seldom know names") from None
            number = int(given)
    if not 0 <= number < 2**32 - 1:
        raise Rejected(f"{what} {number} is out of range", remedy="write a number from 0 to 4294967294")
    return number
