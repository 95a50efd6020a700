"""The parts of the process that an adapter may use besides its settings. Passed in: nothing is global, and tests can choose."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

from agent.clock import Clock
from agent.counters import Counters

if TYPE_CHECKING:
    import aiohttp

    from agent.issuer.held_keys import HeldKeys
    from agent.kube.clients import KubeClients


Http = Callable[[], Awaitable["aiohttp.ClientSession"]]


class Closable(Protocol):
    """A resource of which the process needs one."""

    async def close(self) -> None:
        """Release what it opened; a later use may open it again."""


_Resource = TypeVar("_Resource", bound=Closable)


class Resources:
    """One resource of each kind for the whole process, made on first use and closed together."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._made: dict[Any, Closable] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        while self._made:
            await self._made.popitem()[1].close()

    def get(self, kind: Callable[[Http], _Resource]) -> _Resource:
        """Return the resource of this class; the first call makes it, with the shared client session."""
        if kind not in self._made:
            self._made[kind] = kind(self._http)
        return cast("_Resource", self._made[kind])

    def put(self, resource: Closable) -> None:
        """Use this resource for its class."""
        self._made[type(resource)] = resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """The embedded issuer, as its source needs it."""

    url: str
    """The `iss` claim."""
    keys: "HeldKeys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The process's one of each."""

    clock: Clock
    random: Random
    counters: Counters
    http: Http
    """The shared client session, made on first use; it follows no redirect unless a call says so, so say
    `allow_redirects=False` in each."""
    issuer: Issuer | None = None
    resources: Resources | None = None
    """Made with `Resources(http)`, and closed by the caller that made the toolbox."""
    kube: "KubeClients | None" = None
    """Made with `KubeClients(clock, environ)`, and closed by the same caller; it loads nothing before its first use."""

    def shared(self, kind: Callable[[Http], _Resource]) -> _Resource:
        """Return the process's one resource of this class, such as a cloud SDK's clients."""
        if self.resources is None:
            raise RuntimeError("the toolbox has no resources")
        return self.resources.get(kind)
