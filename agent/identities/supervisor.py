"""The identities that run: started, changed and withdrawn as the configuration says.

Each identity is a keeper and its couriers, tasks in the one flat group of `app.py`.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from agent.config.fingerprints import fingerprints
from agent.config.model import Config, Identity, named_files
from agent.errors import AgentError, Rejected
from agent.identities.assembly import Assembly, RunningIdentity
from agent.identities.authorization import recall
from agent.identities.bound import BoundIdentities
from agent.identities.ledger import Ledger
from agent.identities.orphans import Orphans, delivered
from agent.identities.profiles import vacant
from agent.identities.suspension import Suspensions
from agent.identities.watching import Previous
from agent.identities.withdrawal import close, withdraw
from agent.liveness import within
from agent.model import Key, Location, Sink
from agent.serviceaccounts.annotations import account_of
from agent.sinks import canonical
from agent.sources.file import FileSettings
from agent.store import Store
from agent.tasks import Tasks
from agent.toolbox import Toolbox

log = structlog.get_logger()


class Supervisor:
    """All running identities."""

    def __init__(self, store: Store, toolbox: Toolbox, tasks: Tasks, environ: Mapping[str, str], ledger: Ledger | None = None) -> None:
        """`ledger`: what an earlier process delivered and what was revoked; None: no restart remembers it."""
        self._store = store
        self._toolbox = toolbox
        self._tasks = tasks
        self._ledger = ledger or Ledger()
        self._running: dict[str, RunningIdentity] = {}
        self._configured: dict[str, Identity] = {}
        """By the configuration, whether they run or not."""
        self._files: Mapping[str, str] = {}
        """Fingerprints of the files that settings name, as of the last `apply`."""
        self._starting: dict[str, asyncio.Task[None]] = {}
        """Tasks that retry a start that raised an unforeseen exception."""
        self.turn = asyncio.Lock()
        """Held while a configuration, a revocation or a reinstatement is carried out."""
        self.assembly = Assembly(store, toolbox, tasks, environ)
        self.bound = BoundIdentities(self, store, toolbox)
        self.orphans = Orphans(self._ledger, store, toolbox, lambda: self._configured)
        self.suspensions = Suspensions(self, self._ledger, store, toolbox)

    @property
    def config(self) -> Config:
        """As applied last."""
        return self.assembly.config

    @property
    def identities(self) -> Mapping[str, Identity]:
        """As configured, whether they run or not."""
        return self._configured

    async def apply(self, config: Config) -> None:
        """Start, change and withdraw identities as the configuration says; an unchanged one is not touched."""
        async with self.turn:
            await self._apply(config)

    async def _apply(self, config: Config) -> None:
        wanted = {identity.name: identity for identity in config.identities}
        before, before_files = self._configured, self._files
        files = await fingerprints(config, before_files)
        kept = self._unchanged(config, files)
        gone = [name for name in before if name not in wanted]
        changed = [name for name in before if name in wanted and name not in kept]
        self._configured, self._files = wanted, files
        self.assembly.configure(config, files, idle=not self._running)
        for name in (*gone, *changed):
            if name in self._starting:
                await _cancel([self._starting.pop(name)])
        await self.suspensions.apply(config, before, changed)
        await self._ledger.record(self._ledger.delivered | {place for identity in config.identities for place in delivered(identity)})
        for name in gone:
            await self._remove(before[name])
        taken = {canonical(sink.location): identity.name for identity in config.identities for sink in identity.sinks}
        stopped = {name: await self._stop(before[name], taken) for name in changed}
        for running in list(self._running.values()):
            for sink in [sink for sink in running.leaving if canonical(sink.location) in taken]:
                await self.assembly.withdraw_leaving(running, sink)
        await self.orphans.make_way(taken)
        new = [identity for name, identity in wanted.items() if not self.active(name) and name not in self._starting]
        await asyncio.gather(*(self.begin(identity, stopped.get(identity.name)) for identity in new))  # no disk delays another identity
        self.orphans.changed.set()

    def _unchanged(self, config: Config, files: Mapping[str, str]) -> set[str]:
        """Return the names of identities that this configuration does not change."""
        old = self.config
        if config.refresh != old.refresh or config.issuer != old.issuer:
            return set()
        same = [identity for identity in config.identities if self._configured.get(identity.name) == identity]
        tenants = config.tenancy.namespaces == old.tenancy.namespaces
        return {
            identity.name
            for identity in same
            if all(files[path] == self._files.get(path) for path in named_files(identity))
            and (tenants or not isinstance(identity.source, FileSettings))
        }

    async def begin(self, identity: Identity, previous: Previous | None = None) -> None:
        """Begin to run an identity; after an exception other than AgentError a task of its own retries, and the others run.

        Raises ConfigError.
        """
        try:
            await self._begin(identity, previous)
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001  # bytes in one identity's files end no other's start
            key = Key(identity.name)
            self._store.enrol(vacant(identity, (), self.assembly.authorization(identity)))
            self._starting[identity.name] = self._tasks.start("start", partial(self._retry, identity, previous), key, failed=error)

    async def _retry(self, identity: Identity, previous: Previous | None) -> None:
        await self._begin(identity, previous)
        self._starting.pop(identity.name, None)

    async def _begin(self, identity: Identity, previous: Previous | None) -> None:
        if reason := self.suspensions.reason(identity.name):
            for sink in previous.leaving if previous else ():
                await withdraw(sink)
            await self.suspend(identity, reason)
        elif account_of(identity):
            await self.assembly.announce(identity)
            self.bound.begin(identity, previous)
        else:
            await self.start(identity, previous.leaving if previous else [])

    async def start(self, identity: Identity, leaving: list[Sink], uid: str = "") -> None:
        """Run an identity; `leaving`: sinks under earlier settings, `uid`: of the ServiceAccount that names its principal."""
        self._running[identity.name] = await self.assembly.assemble(identity, leaving, uid)

    async def suspend(self, identity: Identity, reason: Rejected) -> None:
        """Withdraw an identity, and keep it known as `missing` with the reason. Its authorization stays: clients keep it."""
        name = identity.name
        if name in self._starting and self._starting[name] is not asyncio.current_task():
            await _cancel([self._starting.pop(name)])
        previous = await self.bound.leave(name)
        left = [*(previous.leaving if previous else ()), *await self._sinks_left(identity)]
        await self.withdraw(name, lambda: self.bound.enrol(identity, reason))
        await asyncio.gather(*(withdraw(sink, secrets=False) for sink in left))

    async def _remove(self, identity: Identity) -> None:
        """Withdraw an identity that the configuration no longer has."""
        name = identity.name
        previous = await self.bound.leave(name)
        left = [*(previous.leaving if previous else ()), *await self._sinks_left(identity)]
        await self.withdraw(name, wholly=True)
        self.assembly.authorizations.forget(name)
        for sink in left:
            await withdraw(sink)

    async def withdraw(self, name: str, instead: Callable[[], None] = lambda: None, *, wholly: bool = False) -> None:
        """Remove what an identity holds from sinks and store at once; `instead` is called between the two.

        The authorization stays in the sinks, because clients keep it, unless the identity is removed `wholly`.
        """
        running = self._running.pop(name, None)
        if running:
            await _cancel(running.tasks)
        self._store.forget(name)
        sinks, leaving = (running.sinks, running.leaving) if running else ([], [])
        self._toolbox.counters.forget(name, tuple(sink.name for sink in (*sinks, *leaving)))
        instead()
        for sink in sinks:
            await withdraw(sink, secrets=wholly)
        for sink in leaving:
            await withdraw(sink)
        log.info("identity.withdrawn", identity=name)

    async def _stop(self, identity: Identity, taken: Mapping[Location, str]) -> Previous | None:
        """Stop an identity whose settings changed; return its sinks that the new settings give to no identity, None if it held nothing.

        `taken`: the identity that each location belongs to from now on. Files at the location of another identity go at once.
        """
        name = identity.name
        previous = await self.bound.leave(name)
        sinks = [*(previous.leaving if previous else ()), *await self._sinks_left(identity)]
        running = self._running.pop(name, None)
        if running:
            await _cancel(running.tasks)
            sinks += [*running.sinks, *running.leaving]
        leaving = []
        for sink in sinks:
            heir = taken.get(canonical(sink.location))
            if heir is None:
                leaving.append(sink)
            else:
                await (close if heir == name else withdraw)(sink)
        if running is None and previous is None:
            for sink in leaving:
                await withdraw(sink)
            return None
        return Previous(leaving, previous.watcher if previous else None)

    async def _sinks_left(self, identity: Identity) -> list[Sink]:
        """Return the sinks of an identity that does not run: they may hold files of an earlier process, and the authorization."""
        if identity.name in self._running:
            return []
        sinks = self.assembly.sinks(identity)
        for sink in sinks if self.assembly.authorizations.known(identity.name) else ():
            await recall(identity.name, sink)
        return sinks

    async def run_variants(self) -> None:
        """Start the tasks of each run-time variant that a client asks for; for ever."""
        while True:
            with within(None):
                key = await self._store.newcomers.get()
            if running := self._running.get(key.identity):
                running.tasks = [task for task in running.tasks if not task.done()]
                running.tasks += self.assembly.keep(running.keeper, key)

    async def close(self) -> None:
        """Close every sink; files stay."""
        await asyncio.gather(*(close(sink) for running in self._running.values() for sink in (*running.sinks, *running.leaving)))

    def active(self, name: str) -> bool:
        """Return whether an identity runs, or waits for its ServiceAccount."""
        return name in self._running or name in self.bound

    def running(self, name: str) -> tuple[Identity, str] | None:
        """Return a running identity and the UID of its ServiceAccount; None if it does not run."""
        running = self._running.get(name)
        return (running.identity, running.uid) if running else None

    def observed(self, name: str, uid: str) -> None:
        """Note that the identity runs by the ServiceAccount of this UID."""
        if running := self._running.get(name):
            running.uid = uid


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
