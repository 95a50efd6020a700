"""Finds the dialect and the identity of a path.

A path names its identity (`/aws/NAME/…`), or it is well-known (`/latest/…`): such a path means the identity whose own port
received the request, and on the main listener the default identity.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from agent.dialects import DIALECTS
from agent.record import Profile
from agent.serving.dialect import Dialect, DialectRequest
from agent.serving.memo import BoundedCache
from agent.store import Store

MAX_CACHED_TARGETS = 256
MAX_TARGET_CHARACTERS = 256
"""Longer targets are not cached."""


@dataclass(slots=True)
class Route:
    """The dialect and identity of a request. Not frozen: one is made for each request, and freezing would double its cost."""

    request: DialectRequest
    dialect: Dialect | None
    """None: the path matches no dialect."""
    profile: Profile | None
    """None: the identity does not exist, or is not served in this dialect."""


class Router:
    """Routes the requests of all listeners of one endpoint."""

    def __init__(self, store: Store, dialects: Sequence[Dialect]) -> None:
        self._store = store
        self._families = {
            prefix: tuple(dialect for dialect in dialects if DIALECTS[dialect.name].prefix == prefix)
            for prefix in {traits.prefix for traits in DIALECTS.values() if traits.prefix}
        }
        self._rooted = tuple(dialect for dialect in dialects if DIALECTS[dialect.name].rooted)
        self._known: BoundedCache[tuple[Dialect, Profile, str, str]] = BoundedCache(MAX_CACHED_TARGETS, MAX_TARGET_CHARACTERS)
        """By target, of those that name an identity: dialect, profile, and the request's `path` and `before`."""
        self._claims: BoundedCache[tuple[Dialect, ...]] = BoundedCache(MAX_CACHED_TARGETS, MAX_TARGET_CHARACTERS)
        """Dialects that may answer a well-known path, by path without the query."""
        self._defaults: dict[str, str] = {}
        """Identities by the dialect whose default each was when last looked for."""

    def route(self, http: web.BaseRequest, owner: str) -> Route:
        """Return the route of a request. Compares paths as sent, so that no encoding can hide a name.

        `owner`: the identity of the port; empty on the main listener.
        """
        if known := self._known.get(http.raw_path):
            dialect, profile, path, before = known
            if self._store.profile(profile.name) is profile and owner in {"", profile.name}:
                return Route(DialectRequest(http, path, named=True, before=before), dialect, profile)
        path = http.raw_path.partition("?")[0]
        if claims := self._claims.get(path):
            return self._settle(DialectRequest(http, path, named=False), claims, owner)
        pieces = path.split("/", 3)
        if len(pieces) == 4 and not pieces[0] and (family := self._families.get(pieces[1])):
            name = pieces[2]
            request = DialectRequest(http, f"/{pieces[3]}", named=True, before=f"/{pieces[1]}/{name}")
            for one in family:
                if one.matches(request):
                    found = self._store.profile(name) if owner in {"", name} else None
                    if found is None or one.name not in found.dialects:
                        return Route(request, one, None)
                    self._known.keep(http.raw_path, (one, found, request.path, request.before))
                    return Route(request, one, found)
            return Route(request, family[0], None)
        request = DialectRequest(http, path, named=False)
        claimants = tuple(one for one in self._rooted if one.matches(request)) if path.startswith("/") else ()
        if claimants:
            self._claims.keep(path, claimants)
        return self._settle(request, claimants, owner)

    def _settle(self, request: DialectRequest, claimants: Sequence[Dialect], owner: str) -> Route:
        """Return the first dialect whose headers the request may have and that has an identity to serve."""
        headers = request.http.headers
        for one in claimants:
            for name in one.foreign:
                if name in headers:
                    break
            else:
                if found := self._at_root(one, owner):
                    return Route(request, one, found)
        return Route(request, None, None)

    def _at_root(self, dialect: Dialect, owner: str) -> Profile | None:
        """Return the identity that the well-known paths mean."""
        if owner:
            found = self._store.profile(owner)
            return found if found and dialect.name in found.dialects else None
        known = self._store.profile(self._defaults.get(dialect.name, ""))
        if known and known.default and dialect.name in known.dialects:
            return known
        found = next((one for one in self._store.profiles() if one.default and dialect.name in one.dialects), None)
        if found:
            self._defaults[dialect.name] = found.name
        return found
