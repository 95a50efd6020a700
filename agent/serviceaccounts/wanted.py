"""What should run as an identity, as a watcher of the cluster reports it. `Following.reconcile` carries it out."""

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
    """No principal: what the identity held is withdrawn."""

    error: RefreshError


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The cluster cannot be asked: what was seen last holds."""

    error: RefreshError


Wanted = Bound | Unbound | Unreachable
