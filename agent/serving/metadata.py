"""The metadata listener: guards every request, finds the identity and the dialect, and answers from the store.

It calls no provider. A dialect says in its own file what its clients send and expect.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import structlog
from aiohttp import web

from agent.clock import Clock
from agent.errors import RefreshError
from agent.model import Grant, Key
from agent.record import Profile, serving_span
from agent.schedule import State, granted_margin, state_of
from agent.serving.container import Container
from agent.serving.dialect import Answer, Dialect
from agent.serving.guard import Guard
from agent.settings import Address
from agent.store import Store
from agent.tally import Tally

log = structlog.get_logger()

WAITERS = 1024
"""Requests that may wait for a first credential at a time; the next is told to come back."""
NOBODY = "none"
"""The dialect of a request that none knows."""


class MetadataEndpoint:
    """For SDKs."""

    def __init__(self, store: Store, clock: Clock, tally: Tally, addresses: Iterable[Address]) -> None:
        self._store = store
        self._clock = clock
        self._tally = tally
        self._guard = Guard(addresses)
        self._dialects: Mapping[str, Dialect] = {dialect.prefix: dialect for dialect in (Container(),)}
        self._rendered: dict[Key, tuple[Grant, Answer]] = {}
        self._waiting = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request: refused, or answered by its dialect."""
        path = request.raw_path.partition("?")[0]
        prefix, name, rest = _parts(path)
        dialect = self._dialects.get(prefix)
        spoken = dialect.name if dialect else NOBODY
        answer = await self._decide(request, dialect, name, rest)
        self._tally.metadata_requests[spoken, str(answer.status)] += 1
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    async def _decide(self, request: web.BaseRequest, dialect: Dialect | None, name: str, rest: str) -> Answer:
        if objection := self._guard.objection(request):
            return dialect.refuse(403, objection) if dialect else Answer(403, objection.encode() + b"\n")
        profile = self._store.profile(name)
        if dialect is None or profile is None or dialect.name not in profile.dialects or not dialect.knows(rest):
            return Answer(404, b"nothing is served here\n") if dialect is None else dialect.refuse(404, "no such identity is served here")
        if refusal := dialect.admits(request, profile):
            return refusal
        return await self._serve(dialect, profile)

    async def _serve(self, dialect: Dialect, profile: Profile) -> Answer:
        key, now = Key(profile.name), self._clock.now()
        grant = self._store.usable(key, now)
        if grant is None:
            if self._waiting >= WAITERS:
                return dialect.refuse(503, f"{profile.name}: too many wait already")
            self._waiting += 1
            try:
                grant = await self._store.want(key, now, dialect.patience)
            except RefreshError as error:
                return dialect.refuse(503, error.message)
            finally:
                self._waiting -= 1
        self._count(profile, grant, now)
        return self._render(dialect, grant)

    def _render(self, dialect: Dialect, grant: Grant) -> Answer:
        """Made once for each grant. Its number would not tell: an identity that went and came again counts from 1 again."""
        known = self._rendered.get(grant.key)
        if known and known[0] is grant:
            return known[1]
        answer = dialect.render(grant)
        self._rendered = {
            key: kept for key, kept in self._rendered.items() if self._store.record(key)
        }  # no credential outlives its identity
        self._rendered[grant.key] = (grant, answer)
        return answer

    def _count(self, profile: Profile, grant: Grant, now: datetime) -> None:
        span, policy = serving_span(grant), profile.credential_policy
        late = span is None or state_of(span, policy, now) is not State.FRESH or span.remaining(now) < granted_margin(span, policy)
        counter = self._tally.handed_out_stale if late else self._tally.handed_out_valid
        counter[profile.name, "endpoint"] += 1


def _parts(path: str) -> tuple[str, str, str]:
    """`/aws/NAME/credentials` → aws, NAME, credentials; compared as sent, so that no encoding hides anything."""
    pieces = path.split("/", 3)
    return (pieces[1], pieces[2], pieces[3]) if len(pieces) == 4 and not pieces[0] else ("", "", "")
