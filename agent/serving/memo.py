"""Bounded caches of parsed requests: `BoundedCache` for any text of a client, `RequestCache` for the query that a target means.

Clients send the same requests again and again, and some take long to parse.
"""

from typing import TypeVar

from agent.record import Profile
from agent.serving.dialect import Answer, CredentialQuery, DialectRequest

MAX_CACHED_TARGETS = 64
"""Request targets that a dialect caches at a time."""
MAX_TARGET_CHARACTERS = 1024
"""Longer targets are not cached."""
Found = TypeVar("Found", CredentialQuery, Answer | CredentialQuery)


class RequestCache:
    """Caches queries of one dialect by target. Only for dialects in which target and profile determine the query."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[Profile, CredentialQuery]] = BoundedCache(MAX_CACHED_TARGETS, MAX_TARGET_CHARACTERS)
        """By target; refused requests are not cached."""

    def known(self, request: DialectRequest, profile: Profile) -> CredentialQuery | None:
        """Return the cached query of this target; None if the identity's settings have changed since."""
        known = self._known.get(request.http.raw_path)
        return known[1] if known and known[0] is profile else None

    def keep(self, request: DialectRequest, profile: Profile, found: Found) -> Found:
        """Return `found`; cache it if it is a query."""
        if isinstance(found, CredentialQuery):
            self._known.keep(request.http.raw_path, (profile, found))
        return found


Meaning = TypeVar("Meaning")


class BoundedCache(dict[str, Meaning]):
    """Caches a limited number of texts of limited length, because clients choose the texts. A full cache is cleared."""

    def __init__(self, most: int, longest: int) -> None:
        """`longest`: characters of a text."""
        super().__init__()
        self._most = most
        self._longest = longest

    def keep(self, text: str, meaning: Meaning) -> None:
        """Cache the meaning, unless the text is too long."""
        if len(text) <= self._longest:
            if len(self) >= self._most:
                self.clear()
            self[text] = meaning
