"""The Protocol that every metadata dialect implements, and the values that it exchanges with the endpoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from aiohttp import web

from agent.model import Grant, Secret
from agent.record import Profile
from agent.refusals import Refusal

FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response that can be sent any number of times."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)

    def at(self, _now: datetime) -> "Answer":
        """Return the response at this moment."""
        return self

    def until(self, _now: datetime) -> datetime:
        """Return when `at` returns another response."""
        return FOREVER


@dataclass(frozen=True, slots=True)
class Countdown:
    """A 200 whose body contains the whole seconds left, between two constant parts."""

    before: bytes = field(repr=False)
    after: bytes = field(repr=False)
    expires_at: datetime
    headers: Mapping[str, str] = field(default_factory=dict)

    def at(self, now: datetime) -> Answer:
        """Return the response at this moment."""
        return Answer(200, b"%s%d%s" % (self.before, self._left(now), self.after), self.headers)

    def until(self, now: datetime) -> datetime:
        """Return when `at` returns another response."""
        return self.expires_at - timedelta(seconds=self._left(now)) + datetime.resolution

    def _left(self, now: datetime) -> int:
        return max(0, (self.expires_at - now) // timedelta(seconds=1))


Rendered = Answer | Countdown


@dataclass(slots=True)
class DialectRequest:
    """A request and its path inside a dialect. Not frozen: one is made for each request, and freezing would double its cost."""

    http: web.BaseRequest
    path: str
    """As sent, without the query: the part after the identity's name, from its slash on, or a whole well-known path."""
    named: bool
    """Whether the path names the identity: `/aws/NAME` and then `path`."""
    before: str = ""
    """The part of the path before `path`."""


@dataclass(frozen=True, slots=True)
class CredentialQuery:
    """The credential that a request asks for, and how it is rendered."""

    render: Callable[[Grant, Profile], Rendered]
    variant: str = ""
    """As in the store's keys."""
    shape: str = ""
    """Everything that the rendering depends on besides grant and profile; renderings are cached by it."""


class Dialect(Protocol):
    """One protocol in which SDKs request credentials. Its row in `agent.dialects` has the facts that other packages need."""

    name: str
    """In `DIALECTS`."""
    timeout: float
    """Seconds that a request is held while the first credential is on its way; then it is answered 503."""
    foreign: tuple[str, ...]
    """Headers of requests for another service that has the same well-known paths."""

    def matches(self, request: DialectRequest) -> bool:
        """Return whether the path belongs to the dialect. Reads the path only: the router caches the result."""

    def check(self, request: DialectRequest, profile: Profile) -> Answer | None:
        """Return the error for a wrong method, static header or authorization; None if the request is admitted."""

    def resolve(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        """Return the answer to a checked request, or the credential that it asks for. Never blocks."""

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        """Return an error in the dialect's format; 503 carries Retry-After.

        403 from the guard, 404, 503 before the first credential, and for a variant 400 (rejected by the cloud) and 429 (too many).
        """


def plain(value: Any) -> Any:
    """Return the value as it is served: times without a fraction and with `Z`, the one form that every SDK parses."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return value
