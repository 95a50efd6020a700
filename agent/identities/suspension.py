"""Why an identity of the configuration does not run: the operator revoked it, or tenancy forbids it."""

from collections.abc import Mapping

from agent.config.model import Identity, Tenancy
from agent.config.tenancy import forbidden
from agent.errors import Rejected
from agent.record import Revocation


def suspension(identity: Identity, tenancy: Tenancy, revoked: Mapping[str, Revocation]) -> Rejected | None:
    """Return what its clients and `status` are told; None if it may run."""
    name = identity.name
    if revocation := revoked.get(name):
        return Rejected(f"{name}: {described(revocation)}", remedy=f"wi-agent renew {name}")
    if reason := forbidden(identity, tenancy):
        remedy = "allow it in `tenancy`, or remove the identity; a start with this configuration is refused"
        return Rejected(f"{name}: {reason}", remedy=remedy)
    return None


def described(revocation: Revocation) -> str:
    """In words: by whom, and when."""
    return f"revoked by {revocation.by} at {revocation.at:%Y-%m-%dT%H:%M:%SZ}"
