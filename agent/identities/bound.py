"""Identities whose principal comes from ServiceAccount annotations: started, withdrawn and restarted as the ServiceAccount changes.

The agent withdraws files and endpoint entry of one principal before it requests a credential for another, also those of an
earlier process. Only if the operator changes the settings does the old grant stay until the new one is delivered.
"""

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import structlog

from agent.config.model import Identity
from agent.errors import NotReady, Reaction, RefreshError
from agent.identities.profiles import vacant
from agent.identities.unconfirmed import Unconfirmed
from agent.identities.watching import Previous, Watching, names_another
from agent.identities.withdrawal import WITHDRAWAL_TIMEOUT_SECONDS, close, withdraw
from agent.liveness import within
from agent.model import Key, Sink
from agent.serviceaccounts.annotations import followed
from agent.serviceaccounts.wanted import Bound, Unbound, Unreachable, Wanted
from agent.serviceaccounts.watcher import ServiceAccountWatcher
from agent.store import Store
from agent.toolbox import Toolbox

if TYPE_CHECKING:
    from agent.identities.supervisor import Supervisor

log = structlog.get_logger()

FIRST_SIGHT_SECONDS = 1.0
"""After which an identity with a configured principal starts although its ServiceAccount has not been seen: an outage of the API
server leaves no gap, and if the API server answers, no grant of another UID is adopted."""


class BoundIdentities:
    """All of them."""

    def __init__(self, supervisor: "Supervisor", store: Store, toolbox: Toolbox) -> None:
        self._supervisor = supervisor
        self._store = store
        self._toolbox = toolbox
        self._watching: dict[str, Watching] = {}
        self._previous: dict[str, Previous] = {}
        self._empty: set[str] = set()
        """Identities of which no sink holds anything, as far as the agent knows."""

    def __contains__(self, name: str) -> bool:
        return name in self._watching

    def begin(self, identity: Identity, previous: Previous | None) -> None:
        """Watch its ServiceAccount from now on; a grant under other settings stays until there is a new one."""
        name = identity.name
        if previous:
            self._previous[name] = previous
        else:
            self.enrol(identity, NotReady(f"{name}: its ServiceAccount has not been seen yet"))
        watching = self._watching[name] = Watching(ServiceAccountWatcher(identity, self._toolbox), asyncio.Lock(), [], asyncio.Event())
        self._show(name)
        works = [self._follow, self._end_unconfirmed if watching.watcher.follows else self._start_unseen]
        watching.tasks.extend(self._supervisor.assembly.run("serviceaccount", partial(work, watching), Key(name)) for work in works)

    async def leave(self, name: str) -> Previous | None:
        """Stop watching; return what the identity held, which the caller withdraws. None if it held nothing."""
        previous, watching = self._previous.pop(name, None), self._watching.pop(name, None)
        if watching:
            async with watching.turn:
                for task in watching.tasks:
                    task.cancel()
            await asyncio.gather(*watching.tasks, return_exceptions=True)
        self._empty.discard(name)
        self._show(name)
        if self._supervisor.running(name):
            return Previous([], watching.watcher if watching else None)
        return previous

    def uid(self, name: str) -> str:
        """Return the UID of the ServiceAccount as seen last; empty if it was not seen."""
        watching = self._watching.get(name)
        return watching.watcher.last_observed.uid if watching and watching.watcher.last_observed else ""

    async def reconcile(self, identity: Identity, wanted: Wanted) -> None:
        """Run what is wanted: the grant of another principal is withdrawn before the next one starts."""
        name = identity.name
        if isinstance(wanted, Unreachable):
            await self._unreachable(identity, wanted.error)
        elif not isinstance(wanted, Bound) or not self._runs(wanted):
            previous = self._previous.pop(name, None)
            if not self._keeps(identity, wanted, previous):
                await self._withdraw(wanted.identity if isinstance(wanted, Bound) else identity, previous, wanted)
                previous = None
            if isinstance(wanted, Bound):
                self._empty.discard(name)
                await self._supervisor.start(wanted.identity, previous.leaving if previous else [], wanted.uid)
            else:
                self._empty.add(name)
        self._show(name)

    def _runs(self, wanted: Bound) -> bool:
        """Return whether that runs already; its keeper is woken if it failed while the ServiceAccount could not be seen."""
        name = wanted.identity.name
        running, record = self._supervisor.running(name), self._store.record(Key(name))
        if running is None or running[0] != wanted.identity:
            return False
        held = record.grant.token if record and record.grant else None
        if running[1] != wanted.uid and not (not self._follows(name) and held and held.account_uid == wanted.uid):
            return False
        self._supervisor.observed(name, wanted.uid)
        if record and record.failure and record.account and not record.account.watched:
            self._store.nudge(Key(name))
        return True

    def _show(self, name: str) -> None:
        """Show readers of the store what is known of the ServiceAccount."""
        record, watching = self._store.record(Key(name)), self._watching.get(name)
        if record:
            record.account = watching.watcher.observation if watching else None

    def _follows(self, name: str) -> bool:
        return name in self._watching and self._watching[name].watcher.follows

    def _keeps(self, identity: Identity, wanted: Bound | Unbound, previous: Previous | None) -> bool:
        """Return whether the grant stays until there is a new one: it is of the same principal, or adoption compares its principal."""
        if isinstance(wanted, Unbound) or self._supervisor.running(identity.name):
            return False
        if previous:
            return not names_another(previous, watching.watcher if (watching := self._watching.get(identity.name)) else None)
        return followed(identity) is None and identity.name not in self._empty

    async def _follow(self, watching: Watching) -> None:
        async with aclosing(watching.watcher.wanted()) as reports:  # the watch's connection ends with this task
            async for wanted in reports:
                async with watching.turn:
                    await self.reconcile(watching.watcher.identity, wanted)
                if watching.unconfirmed:
                    watching.denied.set()

    async def _end_unconfirmed(self, watching: Watching) -> None:
        """Withdraw files of an earlier process that are not the ServiceAccount's any more, while the watch of it is denied."""
        with within(None):
            await watching.denied.wait()
        identity = watching.watcher.identity
        unconfirmed = Unconfirmed(identity, self._store, self._toolbox, pending=lambda: watching.unconfirmed)
        if error := await unconfirmed.ended():
            async with watching.turn:
                if watching.unconfirmed:
                    await self.reconcile(identity, Unbound(error))

    async def _start_unseen(self, watching: Watching) -> None:
        """Start an identity with a configured principal, if its ServiceAccount has not been seen in time."""
        await self._toolbox.clock.sleep(FIRST_SIGHT_SECONDS)
        identity = watching.watcher.identity
        async with watching.turn:
            if not watching.watcher.reported:
                await self.reconcile(identity, Unreachable(NotReady(f"{identity.name}: its ServiceAccount has not been seen yet")))

    async def _withdraw(self, identity: Identity, previous: Previous | None, wanted: Bound | Unbound) -> None:
        """Withdraw what the identity held; until the next grant it is `missing`, and never unknown."""
        name, error = identity.name, wanted.error if isinstance(wanted, Unbound) else None
        if self._supervisor.running(name):
            changed = error or NotReady(f"{name}: its ServiceAccount was created anew, or names another principal")
            await self._supervisor.withdraw(name, lambda: self.enrol(identity, changed))
            return
        self._store.forget(name)
        self.enrol(identity, error)
        if name not in self._empty:
            await self._clear(identity, previous, wanted.uid if isinstance(wanted, Bound) else None)

    async def _unreachable(self, identity: Identity, error: RefreshError) -> None:
        """Keep to the last observation; an identity with a configured principal runs without a watch."""
        name = identity.name
        if self._supervisor.running(name):
            return
        if followed(identity) is None and (name not in self._empty or error.reaction is Reaction.REJECTED):
            previous = self._previous.pop(name, None)
            self._empty.discard(name)
            await self._supervisor.start(identity, previous.leaving if previous else [])
        elif name not in self._previous and name not in self._empty:
            self.enrol(identity, error)

    def enrol(self, identity: Identity, error: RefreshError | None) -> None:
        """Show the identity as `missing`, with the reason."""
        profile = vacant(
            identity,
            tuple(place.name for place in self._supervisor.assembly.sinks(identity)),
            self._supervisor.assembly.authorization(identity),
        )
        if self._store.profile(identity.name) != profile:
            self._store.enrol(profile)
        if error:
            self._store.attempted(Key(identity.name), error, self._toolbox.clock.now())

    async def _clear(self, identity: Identity, previous: Previous | None, uid: str | None = None) -> None:
        """Withdraw what its sinks hold, unless it was granted to this very principal; then the keeper can adopt it."""
        for sink in previous.leaving if previous else ():
            await withdraw(sink)
        for place in self._supervisor.assembly.sinks(identity, uid or ""):
            if uid is not None and await _holds(place):
                await close(place)
            else:
                await withdraw(place, secrets=False)


async def _holds(place: Sink) -> bool:
    """Return whether the sink holds a grant of this very identity: its digest covers UID and principal."""
    try:
        async with asyncio.timeout(WITHDRAWAL_TIMEOUT_SECONDS):
            return await place.read() is not None
    except Exception as error:  # noqa: BLE001  # files that cannot be read are not adopted
        log.warning("delivery.not_read", sink=place.name, error=str(error) or type(error).__name__)
        return False
