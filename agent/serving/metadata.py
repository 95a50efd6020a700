"""The metadata listener: guards every request, finds the identity and the dialect, and answers from the store.

It calls no provider. A dialect says in its own file what its clients send and expect.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta

from aiohttp import web

from agent.clock import Clock
from agent.counters import Counters
from agent.errors import Reaction, RefreshError, Rejected
from agent.model import Grant, Key
from agent.record import Profile, Record, serving_span
from agent.refusals import REFUSAL_HEADER, Refusal
from agent.schedule import granted_margin, stale_after
from agent.serving.capacity import most
from agent.serving.dialect import Answer, CredentialQuery, Dialect
from agent.serving.dialects import every
from agent.serving.guard import Guard
from agent.serving.responses import PreparedResponse, RenderedCredential, suits
from agent.serving.router import Route, Router
from agent.settings import Address
from agent.store import Store

MAX_RENDERED_PER_IDENTITY = 256
"""Renderings that are cached at a time: one for each dialect and each variant and shape that a client chose."""
UNKNOWN_DIALECT = "none"
"""The metrics label of requests that match no dialect."""

Shape = tuple[str, str, str]
"""Variant, dialect, and what the dialect calls the shape."""


class MetadataEndpoint:
    """Answers SDKs."""

    def __init__(self, store: Store, clock: Clock, counters: Counters, addresses: Iterable[Address]) -> None:
        """`addresses`: where it listens; only their hosts count."""
        self._store = store
        self._clock = clock
        self._counters = counters
        self._guard = Guard(addresses)
        dialects = every()
        self._dialects: Mapping[str, Dialect] = {dialect.name: dialect for dialect in dialects}
        self._router = Router(store, dialects)
        self._rendered: dict[str, dict[Shape, RenderedCredential]] = {}
        """By identity."""
        self._waiting = 0
        self._may_wait = max(1, most() * 13 // 16)
        """Requests for a first credential that wait at a time; the next is answered 503. A connection whose request waits is not closed
        for another, and all listeners share one number of connections: the rest is left to other requests and to probes. Two herds of
        200 fit: the clients of two dialects."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request to the main listener."""
        return await self._answer(request, "")

    def answering(self, owner: str) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        """Return `answer` for an identity's own port, which serves no other identity."""

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return await self._answer(request, owner)

        return answer

    async def _answer(self, request: web.BaseRequest, owner: str) -> web.StreamResponse:
        route = self._router.route(request, owner)
        found = await self._decide(request, route)
        self._counters.metadata_requests[route.dialect.name if route.dialect else UNKNOWN_DIALECT, str(found.status)] += 1
        if isinstance(found, Answer):
            return _response(found)
        return found if suits(request) else _response(found.answer)

    async def _decide(self, request: web.BaseRequest, route: Route) -> Answer | PreparedResponse:
        dialect, profile = route.dialect, route.profile
        if objection := self._guard.objection(request):
            return _error(dialect, 403, *objection)
        if dialect is None or profile is None:
            if dialect:
                return dialect.error(404, Refusal.UNKNOWN_IDENTITY, "no such identity is served here")
            return _error(None, 404, Refusal.UNKNOWN_PATH, "nothing is served here")
        if refusal := dialect.check(route.request, profile):
            return refusal
        now = self._clock.now()
        resolved = dialect.resolve(route.request, profile, now)
        return resolved if isinstance(resolved, Answer) else await self._serve(dialect, profile, resolved, now)

    async def _serve(self, dialect: Dialect, profile: Profile, query: CredentialQuery, now: datetime) -> Answer | PreparedResponse:
        shape = (query.variant, dialect.name, query.shape)
        rendered = self._rendered.get(profile.name, {}).get(shape)
        if rendered is None or not rendered.good(profile, now):
            key = Key(profile.name, query.variant)
            grant = self._store.usable(key, now) or await self._wait(dialect, key, now)
            if isinstance(grant, Answer):
                return grant
            if self._store.profile(profile.name) is not profile:
                return dialect.error(
                    503, Refusal.SETTINGS_CHANGED, f"{profile.name}: its settings have just changed"
                )  # perhaps the authorization, too
            rendered = self._render(profile, grant, query, shape)
            now = self._clock.now()
        if query.variant:
            rendered.record.used_at = now
        counter = self._counters.handed_out_stale if now > rendered.late_after else self._counters.handed_out_valid
        counter[profile.name, "endpoint"] += 1
        return rendered.at(now)

    async def _wait(self, dialect: Dialect, key: Key, now: datetime) -> Grant | Answer:
        """Return the grant that arrives within the dialect's timeout, or else an error."""
        if refusal := self._rejection(dialect, key, now):
            return refusal
        if self._waiting >= self._may_wait:
            return dialect.error(503, Refusal.TOO_MANY_WAITING, f"{key.identity}: too many wait already")
        self._waiting += 1
        try:
            return await self._store.want(key, now, dialect.timeout)
        except Rejected as error:  # one variant too many
            return dialect.error(429, Refusal.TOO_MANY_VARIANTS, error.message)
        except RefreshError as error:
            return self._rejection(dialect, key, self._clock.now()) or dialect.error(503, Refusal.NOT_READY, error.message)
        finally:
            self._waiting -= 1

    def _rejection(self, dialect: Dialect, key: Key, now: datetime) -> Answer | None:
        """Return 400 for a variant that the cloud rejects while it grants the configured credential: the client's request is wrong."""
        record = self._store.record(key) if key.variant else None
        if record and record.failure and record.failure.reaction is Reaction.REJECTED and self._store.usable(Key(key.identity), now):
            return dialect.error(400, Refusal.REJECTED, record.failure.message)
        return None

    def _render(self, profile: Profile, grant: Grant, query: CredentialQuery, shape: Shape) -> RenderedCredential:
        known = self._rendered.get(profile.name, {}).get(shape)
        if known and known.grant is grant and known.profile is profile:
            return known  # rendered for another request of the same moment
        span, policy = serving_span(grant), profile.credential_policy
        assert span  # noqa: S101  # else the store would not have called it usable
        late_after = min(stale_after(span, policy), span.expires_at - timedelta(seconds=granted_margin(span, policy)))
        rendered = RenderedCredential(
            record=self._store.record(grant.key) or Record(grant.key),  # that of a moment ago is gone: good for this once
            grant=grant,
            profile=profile,
            rendered=query.render(grant, profile),
            expires_at=span.expires_at,
            late_after=late_after,
        )
        self._rendered = {name: kept for name, kept in self._rendered.items() if self._store.profile(name)}  # none outlives its identity
        kept = {
            other: one
            for other, one in self._rendered.get(profile.name, {}).items()
            if self._store.newest(Key(profile.name, other[0])) is one.grant  # nor its grant
        }
        self._rendered[profile.name] = {**(kept if len(kept) < MAX_RENDERED_PER_IDENTITY else {}), shape: rendered}
        return rendered


def _error(dialect: Dialect | None, status: int, code: Refusal, reason: str) -> Answer:
    return dialect.error(status, code, reason) if dialect else Answer(status, f"{reason}\n".encode(), {REFUSAL_HEADER: code})


def _response(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
