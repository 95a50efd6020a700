"""The metadata listener: guards every request, finds the identity and the dialect, and answers from the store.

It calls no provider. A dialect says in its own file what its clients send and expect.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from aiohttp import web

from agent.clock import Clock
from agent.errors import RefreshError
from agent.model import Grant, Key
from agent.record import Profile, serving_span
from agent.schedule import granted_margin, stale_after
from agent.serving.container import Container
from agent.serving.dialect import Answer, Dialect
from agent.serving.guard import Guard
from agent.settings import Address
from agent.store import Store
from agent.tally import Tally

WAITERS = 1024
"""Requests that may wait for a first credential at a time; the next is told to come back."""
NOBODY = "none"
"""The dialect of a request that none knows."""


@dataclass(frozen=True, slots=True)
class Portion:
    """A grant as the clients of one profile are given it; worked out once, for it is asked for thousands of times."""

    grant: Grant
    profile: Profile
    answer: Answer
    expires_at: datetime
    late_after: datetime
    """From then on it is handed out for want of a better one."""


class MetadataEndpoint:
    """For SDKs."""

    def __init__(self, store: Store, clock: Clock, tally: Tally, addresses: Iterable[Address]) -> None:
        self._store = store
        self._clock = clock
        self._tally = tally
        self._guard = Guard(addresses)
        self._dialects: Mapping[str, Dialect] = {dialect.prefix: dialect for dialect in (Container(),)}
        self._portions: dict[str, Portion] = {}
        self._waiting = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request: refused, or answered by its dialect."""
        prefix, name, rest = _parts(request.raw_path)
        dialect = self._dialects.get(prefix)
        answer = await self._decide(request, dialect, name, rest)
        self._tally.metadata_requests[dialect.name if dialect else NOBODY, str(answer.status)] += 1
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
        now = self._clock.now()
        portion = self._portions.get(profile.name)
        if (
            portion is None
            or portion.grant is not self._store.newest(portion.grant.key)
            or portion.profile is not profile
            or portion.expires_at <= now
        ):
            key = Key(profile.name)
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
            portion = self._measure(dialect, profile, grant)
        counter = self._tally.handed_out_stale if now > portion.late_after else self._tally.handed_out_valid
        counter[profile.name, "endpoint"] += 1
        return portion.answer

    def _measure(self, dialect: Dialect, profile: Profile, grant: Grant) -> Portion:
        known = self._portions.get(profile.name)
        if known and known.grant is grant and known.profile is profile:
            return known  # as for the rest of a herd
        span, policy = serving_span(grant), profile.credential_policy
        assert span  # noqa: S101  # else the store would not have called it usable
        late_after = min(stale_after(span, policy), span.expires_at - timedelta(seconds=granted_margin(span, policy)))
        portion = Portion(grant, profile, dialect.render(grant), span.expires_at, late_after)
        there = {one.name for one in self._store.profiles()}  # no credential outlives its identity
        self._portions = {name: kept for name, kept in self._portions.items() if name in there}
        self._portions[profile.name] = portion
        return portion


def _parts(target: str) -> tuple[str, str, str]:
    """`/aws/NAME/credentials?…` → aws, NAME, credentials; compared as sent, so that no encoding hides anything."""
    pieces = target.partition("?")[0].split("/", 3)
    return (pieces[1], pieces[2], pieces[3]) if len(pieces) == 4 and not pieces[0] else ("", "", "")
