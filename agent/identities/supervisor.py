"""The identities that run: takes them up, changes them, lets them go, as the configuration says.

Each identity is a keeper and its couriers, tasks in the one flat group of `app.py`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from agent import providers, sinks, sources
from agent.clock import STEP
from agent.config.fingerprints import fingerprints
from agent.config.model import Config, Identity, identity_digest, named_files
from agent.config.rules.identities import authorization
from agent.config.tenancy import TenantSource, foreign
from agent.counters import TaskKind
from agent.errors import AgentError, Rejected
from agent.identities.authorization import Authorizations, recall
from agent.identities.bound import BoundIdentities, Previous
from agent.identities.ledger import Ledger
from agent.identities.orphans import Orphans, delivered
from agent.identities.profiles import keeper_options, profile, vacant
from agent.identities.suspension import suspension
from agent.identities.withdrawal import close, withdraw
from agent.liveness import within
from agent.model import Key, Location, Secret, Sink, Source
from agent.record import Revocation
from agent.rotation.courier import Courier
from agent.rotation.keeper import Keeper
from agent.rotation.limiter import FairLimiter
from agent.rotation.max_use import limit_use
from agent.serviceaccounts.annotations import account_of, followed
from agent.sources.file import FileSettings
from agent.store import Store
from agent.tasks import Tasks, Work
from agent.toolbox import Toolbox

log = structlog.get_logger()


@dataclass(slots=True)
class RunningIdentity:
    """One running identity."""

    identity: Identity
    keeper: Keeper
    sinks: list[Sink]
    leaving: list[Sink]
    """Where it lay under earlier settings, until it is delivered under these."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    uid: str = ""
    """Of the ServiceAccount that says who it is, where one does."""


class Supervisor:
    """All running identities."""

    def __init__(self, store: Store, toolbox: Toolbox, tasks: Tasks, environ: Mapping[str, str], ledger: Ledger | None = None) -> None:
        """`ledger`: what an earlier process delivered and what was revoked; without one nothing is remembered."""
        self._store = store
        self._toolbox = toolbox
        self._tasks = tasks
        self._environ = environ
        self._authorizations = Authorizations()
        self._limiter = FairLimiter(16)
        self._config = Config(identities=())
        self._running: dict[str, RunningIdentity] = {}
        self._configured: dict[str, Identity] = {}
        """What the configuration says of each that runs or is followed."""
        self._files: Mapping[str, str] = {}
        """Fingerprints of the files that settings name, as of the last `apply`."""
        self._bound = BoundIdentities(self, store, toolbox)
        self._starting: dict[str, asyncio.Task[None]] = {}
        """Those whose start failed of something unforeseen, and is tried again."""
        self._ledger = ledger or Ledger()
        self.orphans = Orphans(self._ledger, store, toolbox, lambda: self._configured)
        self._suspended: dict[str, Rejected] = {}
        """Those of the configuration that do not run, and why."""
        self._turn = asyncio.Lock()
        """Held while the configuration, a revocation or its end is carried out."""

    async def apply(self, config: Config) -> None:
        """Makes what runs be what the configuration says; what did not change is not touched."""
        async with self._turn:
            await self._apply(config)

    async def _apply(self, config: Config) -> None:
        wanted = {identity.name: identity for identity in config.identities}
        files, before_files = await fingerprints(config, self._files), self._files
        same = config.refresh == self._config.refresh and config.issuer == self._config.issuer
        if config.refresh.concurrency != self._config.refresh.concurrency or not self._running:
            self._limiter = FairLimiter(config.refresh.concurrency)
        gone = [name for name in self._configured if name not in wanted]
        tenants = config.tenancy.namespaces == self._config.tenancy.namespaces
        kept = {name for name, identity in wanted.items() if same and self._configured.get(name) == identity}
        kept = {name for name in kept if all(files[path] == before_files.get(path) for path in named_files(wanted[name]))}
        kept = {name for name in kept if tenants or not isinstance(wanted[name].source, FileSettings)}
        changed = [name for name in self._configured if name in wanted and name not in kept]
        before, self._config, self._configured, self._files = self._configured, config, wanted, files
        for name in (*gone, *changed):
            if name in self._starting:
                await _cancel([self._starting.pop(name)])
        await self._suspend_forbidden(config, before, changed)
        await self._ledger.record(self._ledger.delivered | {place for identity in config.identities for place in delivered(identity)})
        for name in gone:
            previous = await self._bound.leave(name)
            left = [*(previous.leaving if previous else ()), *await self._left(before[name])]
            await self.dismiss(name, wholly=True)
            self._authorizations.forget(name)
            for sink in left:
                await withdraw(sink)
        taken = {sinks.canonical(sink.location): identity.name for identity in config.identities for sink in identity.sinks}
        halted = {name: await self._halt(before[name], taken) for name in changed}
        for running_identity in list(self._running.values()):
            for sink in [sink for sink in running_identity.leaving if sinks.canonical(sink.location) in taken]:
                await self._leave(running_identity, sink)
        await self.orphans.make_way(taken)
        new = [
            identity
            for name, identity in wanted.items()
            if name not in self._running and name not in self._bound and name not in self._starting
        ]
        await asyncio.gather(*(self._start(identity, halted.get(identity.name)) for identity in new))  # no disk holds up another's identity
        self.orphans.changed.set()

    async def _suspend_forbidden(self, config: Config, before: Mapping[str, Identity], changed: Sequence[str]) -> None:
        """Withdraw what the configuration forbids now, and what was revoked; `before`: as configured until now."""
        wanted = self._configured
        reasons = {name: suspension(identity, config.tenancy, self._ledger.revoked) for name, identity in wanted.items()}
        self._suspended = {name: reason for name, reason in reasons.items() if reason}
        for name in changed:
            grant = self._store.newest(Key(name))
            if grant and grant.token and foreign(grant.token.subject, config.tenancy):
                self._store.end_all(name)
        for name in self._suspended.keys() & before.keys():
            await self._suspend(before[name], self._suspended[name])

    async def revoke(self, name: str, by: str) -> bool:
        """Withdraw an identity until it is reinstated; return whether a restart will know of it. Raises KeyError if there is none."""
        identity = self._configured[name]
        revocation = Revocation(at=self._toolbox.clock.now(), by=by)
        saved = await self._ledger.revoke(name, revocation)
        self._store.end_all(name)  # at once, whatever a reload that is under way waits for
        async with self._turn:
            if self._configured.get(name) is not None and name in self._ledger.revoked:
                reason = self._suspended[name] = suspension(identity, self._config.tenancy, {name: revocation}) or Rejected(name)
                await self._suspend(self._configured[name], reason)
        log.warning("identity.revoked", identity=name, by=by, remembered=saved)
        return saved

    async def reinstate(self, name: str) -> bool:
        """Let a revoked identity run again; False if it was not revoked."""
        if name not in self._ledger.revoked:
            return False
        await self._ledger.reinstate(name)
        async with self._turn:
            identity = self._configured.get(name)
            if identity is not None and name not in self._running and name not in self._bound:
                self._suspended.pop(name, None)
                if reason := suspension(identity, self._config.tenancy, self._ledger.revoked):
                    self._suspended[name] = reason
                await self._start(identity, None)
        log.info("identity.reinstated", identity=name)
        return True

    @property
    def revoked(self) -> Mapping[str, Revocation]:
        """Those that the operator revoked, configured or not."""
        return self._ledger.revoked

    @property
    def identities(self) -> Mapping[str, Identity]:
        """As configured, whether they run or not."""
        return self._configured

    def uid(self, name: str) -> str:
        """Of the ServiceAccount that says who it is, as seen last; empty where none does, or it is not there."""
        return self._bound.uid(name)

    async def welcome(self) -> None:
        """Gives run-time variants a keeper; for ever."""
        while True:
            with within(None):
                key = await self._store.newcomers.get()
            if running_identity := self._running.get(key.identity):
                running_identity.tasks = [task for task in running_identity.tasks if not task.done()]
                running_identity.tasks += self._keep(running_identity.keeper, key)

    async def close(self) -> None:
        """Lets go of every place, leaving what was written."""
        await asyncio.gather(
            *(close(sink) for running_identity in self._running.values() for sink in (*running_identity.sinks, *running_identity.leaving))
        )

    def running(self, name: str) -> tuple[Identity, str] | None:
        running_identity = self._running.get(name)
        return (running_identity.identity, running_identity.uid) if running_identity else None

    def observed(self, name: str, uid: str) -> None:
        """Note that the identity runs by the ServiceAccount of this UID."""
        if running_identity := self._running.get(name):
            running_identity.uid = uid

    def places(self, identity: Identity, uid: str = "") -> list[Sink]:
        digest = self._digest(identity, uid)
        return [sinks.build(settings, identity.name, digest, self._toolbox) for settings in identity.sinks]

    def authorization(self, identity: Identity) -> Secret | None:
        if not identity.serve.dialects:
            return None
        text = identity.serve.authorization
        return Secret(authorization(text, self._environ)) if text else self._authorizations.known(identity.name)

    async def _start(self, identity: Identity, previous: Previous | None) -> None:
        """Begin it; unless the configuration is why that failed, a task of its own tries again, and the others run.

        Raises ConfigError.
        """
        try:
            await self._begin(identity, previous)
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001  # bytes in one identity's files end no other's start
            key = Key(identity.name)
            self._store.enrol(vacant(identity, (), self.authorization(identity)))
            self._starting[identity.name] = self._tasks.start("start", partial(self._start_again, identity, previous), key, failed=error)

    async def _start_again(self, identity: Identity, previous: Previous | None) -> None:
        await self._begin(identity, previous)
        self._starting.pop(identity.name, None)

    async def _begin(self, identity: Identity, previous: Previous | None) -> None:
        if reason := self._suspended.get(identity.name):
            for sink in previous.leaving if previous else ():
                await withdraw(sink)
            await self._suspend(identity, reason)
        elif account_of(identity):
            await self._announce(identity)
            self._bound.begin(identity, previous)
        else:
            await self.take_up(identity, previous.leaving if previous else [])

    async def _suspend(self, identity: Identity, reason: Rejected) -> None:
        """Withdraw it; it stays known as `missing`, and why. What its clients present stays: they hold on to it."""
        name = identity.name
        if name in self._starting and self._starting[name] is not asyncio.current_task():
            await _cancel([self._starting.pop(name)])
        previous = await self._bound.leave(name)
        left = [*(previous.leaving if previous else ()), *await self._left(identity)]
        await self.dismiss(name, lambda: self._bound.enrol(identity, reason))
        await asyncio.gather(*(withdraw(sink, secrets=False) for sink in left))

    async def take_up(self, identity: Identity, leaving: list[Sink], uid: str = "") -> None:
        tools = self._toolbox
        digest = self._digest(identity, uid)
        places = self.places(identity, uid)
        names = tuple(place.name for place in places)
        about = profile(identity, self._config, digest, names, await self._authorization(identity, places))
        about = replace(about, account_uid=uid, follows=self._follows(identity.name))
        record = self._store.enrol(about)
        keeper = Keeper(
            about,
            self._source(identity),
            providers.build(identity.provider, identity.name, tools),
            options=keeper_options(identity, self._config),
            store=self._store,
            limiter=self._limiter,
            clock=tools.clock,
            random=tools.random,
            counters=tools.counters,
        )
        running_identity = self._running[identity.name] = RunningIdentity(identity, keeper, places, leaving, uid=uid)
        running_identity.tasks = [*self._keep(keeper, record.key, places), self.run("source", keeper.watch, record.key)]
        for other in self._store.records(identity.name):
            running_identity.tasks += self._keep(keeper, other.key) if other is not record else ()
        for place in places:
            courier = Courier(identity.name, place, store=self._store, clock=tools.clock, random=tools.random, counters=tools.counters)
            running_identity.tasks.append(self.run("delivery", courier.carry, record.key, to=place.name))
        if leaving:
            running_identity.tasks.append(self.run("withdrawal", partial(self._see_off, running_identity, digest), record.key))
        log.info("identity.taken_up", identity=identity.name, source=about.source, provider=about.provider)

    def _follows(self, name: str) -> bool:
        """Whether annotations name the identity's principal, by the configuration: once they did, the identity names it itself."""
        configured = self._configured.get(name)
        return configured is not None and followed(configured) is not None

    def _digest(self, identity: Identity, uid: str) -> str:
        """With the UID only where it came with the principal. Else adoption compares it, because the agent may not know it."""
        return identity_digest(identity, self._config, uid if self._follows(identity.name) else "", self._files)

    def _source(self, identity: Identity) -> Source:
        source = sources.build(identity.source, identity.name, self._toolbox)
        if not isinstance(identity.source, FileSettings):
            return source
        return TenantSource(source, identity.name, self._config.tenancy)

    def _keep(self, keeper: Keeper, key: Key, places: Sequence[Sink] = ()) -> list[asyncio.Task[None]]:
        """The tasks that keep one key fresh; where `refresh.maxUse` is set, one of them withdraws what could not be renewed."""
        tasks = [self.run("refresh", partial(keeper.keep, key.variant, places), key)]
        if max_use := keeper.max_use:
            tasks.append(self.run("withdrawal", partial(limit_use, key, max_use, self._store, self._toolbox.clock), key))
        return tasks

    async def _halt(self, identity: Identity, taken: Mapping[Location, str]) -> Previous | None:
        """Stops an identity whose settings changed; returns its sinks that nobody has under the new settings, None if it held nothing.

        `taken`: the identity that each place belongs to from now on. Where it is another's, this one's files go at once.
        """
        name = identity.name
        previous = await self._bound.leave(name)
        held = [*(previous.leaving if previous else ()), *await self._left(identity)]
        running_identity = self._running.pop(name, None)
        if running_identity:
            await _cancel(running_identity.tasks)
            held += [*running_identity.sinks, *running_identity.leaving]
        leaving = []
        for sink in held:
            heir = taken.get(sinks.canonical(sink.location))
            if heir is None:
                leaving.append(sink)
            else:
                await (close if heir == name else withdraw)(sink)
        if running_identity is None and previous is None:
            for sink in leaving:
                await withdraw(sink)
            return None
        return Previous(leaving, previous.watcher if previous else None)

    async def _see_off(self, running_identity: RunningIdentity, digest: str) -> None:
        """Withdraws from places that are no longer wanted, once the new ones have what the workload needs."""
        name = running_identity.identity.name
        while True:
            grant = self._store.newest(Key(name))
            if grant and grant.digest == digest and self._store.delivered(name, self._toolbox.clock.now()):
                break
            if (record := self._store.record(Key(name))) and record.ended:
                break  # the identity may no longer be had, under whatever settings
            await self._toolbox.clock.wait(self._store.news, STEP)
        for sink in list(running_identity.leaving):
            await self._leave(running_identity, sink)

    async def _leave(self, running_identity: RunningIdentity, sink: Sink) -> None:
        await withdraw(sink)
        self._toolbox.counters.retire((sink.name,))
        running_identity.leaving = [other for other in running_identity.leaving if other is not sink]

    async def dismiss(self, name: str, instead: Callable[[], None] = lambda: None, *, wholly: bool = False) -> None:
        """The identity is another, or `wholly` gone: its files and its place in the store go at once.

        What its clients present stays where it lies until it is gone: they hold on to it.
        """
        running_identity = self._running.pop(name, None)
        if running_identity:
            await _cancel(running_identity.tasks)
        self._store.forget(name)
        places, leaving = (running_identity.sinks, running_identity.leaving) if running_identity else ([], [])
        self._toolbox.counters.forget(name, tuple(place.name for place in (*places, *leaving)))
        instead()
        for place in places:
            await withdraw(place, secrets=wholly)
        for place in leaving:
            await withdraw(place)
        log.info("identity.withdrawn", identity=name)

    async def _authorization(self, identity: Identity, places: list[Sink]) -> Secret | None:
        """What clients have to present: as configured, else kept from an earlier start, else made up now; it lies beside the files."""
        if identity.serve.dialects and not identity.serve.authorization:
            return await self._authorizations.share(identity.name, places)
        return self.authorization(identity)

    async def _announce(self, identity: Identity) -> None:
        """Has what clients present lie in its places before anybody knows who it is."""
        places = self.places(identity)
        await self._authorization(identity, places)
        for place in places:
            await close(place)

    async def _left(self, identity: Identity) -> list[Sink]:
        """The places of one that does not run: an earlier process may have left something there, and what clients present lies there."""
        if identity.name in self._running:
            return []
        places = self.places(identity)
        for place in places if self._authorizations.known(identity.name) else ():
            await recall(identity.name, place)
        return places

    def run(self, kind: TaskKind, work: Work, key: Key, *, to: str = "") -> asyncio.Task[None]:
        return self._tasks.start(kind, work, key, to=to)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
