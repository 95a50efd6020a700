"""What every metadata dialect has to say of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from agent.model import Grant
from agent.record import Profile


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, ready to be sent any number of times."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


class Dialect(Protocol):
    """One way in which SDKs ask for credentials."""

    name: str
    """In the configuration and as a label."""
    prefix: str
    """First part of its paths."""
    patience: float
    """Seconds its clients wait at least: before the first credential a request is held for so long, then told to come back."""

    def knows(self, rest: str) -> bool:
        """Whether this path below the identity's name is one of its."""

    def admits(self, request: web.BaseRequest, profile: Profile) -> Answer | None:
        """None, or how the request is refused: method, static headers, authorization."""

    def refuse(self, status: int, reason: str) -> Answer:
        """An error as its clients expect one; 503 carries Retry-After."""

    def render(self, grant: Grant) -> Answer:
        """The credential."""
