"""Identities of the configuration that do not run: the operator revoked them, or `tenancy` forbids them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from agent.config.model import Config, Identity, Tenancy
from agent.config.tenancy import forbidden, foreign
from agent.errors import Rejected
from agent.identities.ledger import Ledger
from agent.model import Key
from agent.record import Revocation
from agent.store import Store
from agent.toolbox import Toolbox

if TYPE_CHECKING:
    from agent.identities.supervisor import Supervisor

log = structlog.get_logger()


class Suspensions:
    """All of them. The ledger keeps revocations over a restart."""

    def __init__(self, supervisor: "Supervisor", ledger: Ledger, store: Store, toolbox: Toolbox) -> None:
        self._supervisor = supervisor
        self._ledger = ledger
        self._store = store
        self._clock = toolbox.clock
        self._reasons: dict[str, Rejected] = {}

    @property
    def revoked(self) -> Mapping[str, Revocation]:
        """Identities that the operator revoked, configured or not."""
        return self._ledger.revoked

    def reason(self, name: str) -> Rejected | None:
        """Return why an identity does not run; None if it may."""
        return self._reasons.get(name)

    async def apply(self, config: Config, before: Mapping[str, Identity], changed: Sequence[str]) -> None:
        """Withdraw what was revoked and what this configuration forbids; `before`: the identities of the configuration before it."""
        wanted = {identity.name: identity for identity in config.identities}
        reasons = {name: suspension(identity, config.tenancy, self.revoked) for name, identity in wanted.items()}
        self._reasons = {name: reason for name, reason in reasons.items() if reason}
        for name in changed:
            grant = self._store.newest(Key(name))
            if grant and grant.token and foreign(grant.token.subject, config.tenancy):
                self._store.end_all(name)
        for name in self._reasons.keys() & before.keys():
            await self._supervisor.suspend(before[name], self._reasons[name])

    async def revoke(self, name: str, by: str) -> bool:
        """Withdraw an identity until it is reinstated; return whether a restart keeps it revoked. Raises KeyError if unknown."""
        if name not in self._supervisor.identities:
            raise KeyError(name)
        revocation = Revocation(at=self._clock.now(), by=by)
        saved = await self._ledger.revoke(name, revocation)
        self._store.end_all(name)  # at once, even while a reload waits for something
        async with self._supervisor.turn:
            if (identity := self._supervisor.identities.get(name)) is not None and name in self.revoked:
                reason = suspension(identity, self._supervisor.config.tenancy, {name: revocation}) or Rejected(name)
                self._reasons[name] = reason
                await self._supervisor.suspend(identity, reason)
        log.warning("identity.revoked", identity=name, by=by, remembered=saved)
        return saved

    async def reinstate(self, name: str) -> bool:
        """Let a revoked identity run again; False if it was not revoked."""
        if name not in self.revoked:
            return False
        await self._ledger.reinstate(name)
        async with self._supervisor.turn:
            identity = self._supervisor.identities.get(name)
            if identity is not None and not self._supervisor.active(name):
                self._reasons.pop(name, None)
                if reason := suspension(identity, self._supervisor.config.tenancy, self.revoked):
                    self._reasons[name] = reason
                await self._supervisor.begin(identity)
        log.info("identity.reinstated", identity=name)
        return True


def suspension(identity: Identity, tenancy: Tenancy, revoked: Mapping[str, Revocation]) -> Rejected | None:
    """Return the reason that clients and `status` get; None if the identity may run."""
    name = identity.name
    if revocation := revoked.get(name):
        return Rejected(f"{name}: {described(revocation)}", remedy=f"wi-agent renew {name}")
    if reason := forbidden(identity, tenancy):
        remedy = "allow it in `tenancy`, or remove the identity; a start with this configuration is refused"
        return Rejected(f"{name}: {reason}", remedy=remedy)
    return None


def described(revocation: Revocation) -> str:
    """Return by whom and when, in words."""
    return f"revoked by {revocation.by} at {revocation.at:%Y-%m-%dT%H:%M:%SZ}"
