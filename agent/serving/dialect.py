"""What every metadata dialect has to say of itself."""

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
    """A response, ready to be sent any number of times."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)

    def at(self, _now: datetime) -> "Answer":
        """The response at this moment."""
        return self

    def until(self, _now: datetime) -> datetime:
        """When `at` will say something else."""
        return FOREVER


@dataclass(frozen=True, slots=True)
class Countdown:
    """A good response whose body says how many whole seconds are left, between two parts that stay as they are."""

    before: bytes = field(repr=False)
    after: bytes = field(repr=False)
    expires_at: datetime
    headers: Mapping[str, str] = field(default_factory=dict)

    def at(self, now: datetime) -> Answer:
        """The response at this moment."""
        return Answer(200, b"%s%d%s" % (self.before, self._left(now), self.after), self.headers)

    def until(self, now: datetime) -> datetime:
        """When `at` will say something else."""
        return self.expires_at - timedelta(seconds=self._left(now)) + datetime.resolution

    def _left(self, now: datetime) -> int:
        return max(0, (self.expires_at - now) // timedelta(seconds=1))


Rendered = Answer | Countdown


@dataclass(slots=True)
class DialectRequest:
    """A request, and the path by which it came to a dialect. Not frozen, as one is made for each request and that would double its cost."""

    request: web.BaseRequest
    path: str
    """As sent, from its slash on and without the query: what follows the identity's name, or the whole of a well-known path."""
    named: bool
    """Whether the path names the identity: `/aws/NAME` and then `path`."""
    before: str = ""
    """What stands before `path`."""


@dataclass(frozen=True, slots=True)
class CredentialQuery:
    """A credential that a request asks for, and how it is written down."""

    render: Callable[[Grant, Profile], Rendered]
    variant: str = ""
    """As in the store's keys."""
    shape: str = ""
    """All that the rendering depends on beside grant and profile: what was rendered is kept by it."""


class Dialect(Protocol):
    """One way in which SDKs ask for credentials."""

    name: str
    """In the configuration and as a label."""
    prefix: str
    """First part of the paths that name an identity; empty where none can."""
    rooted: bool
    """Whether it has well-known paths, which name no identity."""
    patience: float
    """Seconds its clients wait at least: before the first credential a request is held for so long, then told to come back."""
    foreign: tuple[str, ...]
    """Headers that say that another service is meant whose well-known paths are the same."""

    def knows(self, visit: DialectRequest) -> bool:
        """Whether this path is one of its: the path alone decides, for the router remembers it."""

    def admits(self, visit: DialectRequest, profile: Profile) -> Answer | None:
        """None, or how the request is refused: method, static headers, authorization."""

    def wants(self, visit: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        """What an admitted request asks for: the answer, where that needs no credential, or else which one. Waits for nothing."""

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        """An error as its clients expect one; 503 carries Retry-After.

        403 from the guard, 404, 503 where there is nothing yet, and for a variant 400 (the cloud refuses it) and 429 (too many).
        """


def plain(value: Any) -> Any:
    """Times without a fraction and with `Z`: the one form that every SDK parses."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return value
