"""What an adapter may ask for besides its settings. Handed in, so that nothing is global and tests can choose."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from agent.clock import Clock
from agent.counters import Counters

if TYPE_CHECKING:
    import aiohttp

    from agent.issuer.held_keys import HeldKeys
    from agent.kube.clients import KubeClients
    from agent.providers.aws.client import AwsClients


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
    http: "Callable[[], Awaitable[aiohttp.ClientSession]]"
    """The shared client session, made on first use; it follows no redirect unless a call says so, so say
    `allow_redirects=False` in each."""
    issuer: Issuer | None = None
    aws: "AwsClients | None" = None
    """Made with `AwsClients(http)` and closed by who makes the toolbox; it loads nothing before it is asked."""
    kube: "KubeClients | None" = None
    """Made with `KubeClients(clock, environ)`; the same holds for it."""
