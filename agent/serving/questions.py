"""What requests have asked for, each worked out once: clients send the same one again and again, and some are long to read."""

from typing import TypeVar

from agent.record import Profile
from agent.serving.dialect import Answer, Visit, Want
from agent.serving.remembered import Remembered

MOST, LONGEST = 64, 1024
"""Questions that are remembered at a time, and characters of one."""
Found = TypeVar("Found", Want, Answer | Want)


class Questions:
    """For one dialect, and only where target and profile say it all."""

    def __init__(self) -> None:
        self._known: Remembered[tuple[Profile, Want]] = Remembered(MOST, LONGEST)
        """By target; what was refused is not kept."""

    def known(self, visit: Visit, profile: Profile) -> Want | None:
        """What this one asks for, if it was asked before under the same settings."""
        known = self._known.get(visit.request.raw_path)
        return known[1] if known and known[0] is profile else None

    def keep(self, visit: Visit, profile: Profile, found: Found) -> Found:
        """`found`, remembered where it is something to want."""
        if isinstance(found, Want):
            self._known.keep(visit.request.raw_path, (profile, found))
        return found
