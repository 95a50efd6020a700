"""Wanted states of an identity, as a watcher of the cluster reports them. `BoundIdentities.reconcile` carries them out."""

from dataclasses import dataclass

from agent.config.model import Identity
from agent.errors import RefreshError


@dataclass(frozen=True, slots=True)
class Bound:
    """This principal, by the ServiceAccount of this UID."""

    identity: Identity
    uid: str


@dataclass(frozen=True, slots=True)
class Unbound:
    """No principal: the agent withdraws what the identity held."""

    error: RefreshError


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The API server cannot be reached: the last observation holds."""

    error: RefreshError


Wanted = Bound | Unbound | Unreachable
