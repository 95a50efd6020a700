"""What requests have asked for, each worked out once: clients send the same one again and again, and some are long to read."""

from typing import TypeVar

from agent.record import Profile
from agent.serving.dialect import Answer, CredentialQuery, DialectRequest

MOST, LONGEST = 64, 1024
"""Questions that are remembered at a time, and characters of one."""
Found = TypeVar("Found", CredentialQuery, Answer | CredentialQuery)


class RequestCache:
    """For one dialect, and only where target and profile say it all."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[Profile, CredentialQuery]] = BoundedCache(MOST, LONGEST)
        """By target; what was refused is not kept."""

    def known(self, request: DialectRequest, profile: Profile) -> CredentialQuery | None:
        """What this one asks for, if it was asked before under the same settings."""
        known = self._known.get(request.http.raw_path)
        return known[1] if known and known[0] is profile else None

    def keep(self, request: DialectRequest, profile: Profile, found: Found) -> Found:
        """`found`, remembered where it is something to want."""
        if isinstance(found, CredentialQuery):
            self._known.keep(request.http.raw_path, (profile, found))
        return found


Meaning = TypeVar("Meaning")


class BoundedCache(dict[str, Meaning]):
    """So many at most, and none for a long text, for clients choose the texts. When it is full it begins anew."""

    def __init__(self, most: int, longest: int) -> None:
        """`longest`: characters of a text."""
        super().__init__()
        self._most = most
        self._longest = longest

    def keep(self, text: str, meaning: Meaning) -> None:
        """Its meaning, unless it is too long."""
        if len(text) <= self._longest:
            if len(self) >= self._most:
                self.clear()
            self[text] = meaning
