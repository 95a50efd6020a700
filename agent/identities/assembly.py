"""Assembles one identity from its settings: keeper, couriers, sinks, and the tasks that run them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from agent import providers, sinks, sources
from agent.clock import STEP
from agent.config.authorization import authorization
from agent.config.model import Config, Identity, identity_digest
from agent.config.tenancy import TenantSource
from agent.counters import TaskKind
from agent.identities.authorization import Authorizations
from agent.identities.profiles import keeper_options, profile
from agent.identities.withdrawal import close, withdraw
from agent.model import Key, Secret, Sink, Source
from agent.rotation.courier import Courier
from agent.rotation.keeper import Keeper
from agent.rotation.limiter import FairLimiter
from agent.rotation.max_use import limit_use
from agent.serviceaccounts.annotations import followed
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
    """Sinks under earlier settings, withdrawn once the identity is delivered under these."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    uid: str = ""
    """UID of the ServiceAccount that names the principal; empty if none does."""


class Assembly:
    """Builds running identities by the configuration of the moment."""

    def __init__(self, store: Store, toolbox: Toolbox, tasks: Tasks, environ: Mapping[str, str]) -> None:
        self.authorizations = Authorizations()
        self.config = Config(identities=())
        self._store = store
        self._toolbox = toolbox
        self._tasks = tasks
        self._environ = environ
        self._limiter = FairLimiter(16)
        self._files: Mapping[str, str] = {}
        self._followed: frozenset[str] = frozenset()
        """Identities whose principal annotations name, by the configuration."""

    def configure(self, config: Config, files: Mapping[str, str], *, idle: bool) -> None:
        """Build by this configuration from now on.

        `files`: fingerprints of the files that settings name. `idle`: no identity runs, so none holds a slot.
        """
        if idle or config.refresh.concurrency != self.config.refresh.concurrency:
            self._limiter = FairLimiter(config.refresh.concurrency)
        self.config, self._files = config, files
        self._followed = frozenset(identity.name for identity in config.identities if followed(identity))

    async def assemble(self, identity: Identity, leaving: list[Sink], uid: str = "") -> RunningIdentity:
        """Build an identity, and start its tasks."""
        tools = self._toolbox
        digest = self._digest(identity, uid)
        places = self.sinks(identity, uid)
        names = tuple(sink.name for sink in places)
        about = profile(identity, self.config, digest, names, await self._share_authorization(identity, places))
        about = replace(about, account_uid=uid, follows=identity.name in self._followed)
        record = self._store.enrol(about)
        keeper = Keeper(
            about,
            self._source(identity),
            providers.build(identity.provider, identity.name, tools),
            options=keeper_options(identity, self.config),
            store=self._store,
            limiter=self._limiter,
            clock=tools.clock,
            random=tools.random,
            counters=tools.counters,
        )
        running = RunningIdentity(identity, keeper, places, leaving, uid=uid)
        running.tasks = [*self.keep(keeper, record.key, places), self.run("source", keeper.watch, record.key)]
        for other in self._store.records(identity.name):
            running.tasks += self.keep(keeper, other.key) if other is not record else ()
        for sink in places:
            courier = Courier(identity.name, sink, store=self._store, clock=tools.clock, random=tools.random, counters=tools.counters)
            running.tasks.append(self.run("delivery", courier.carry, record.key, to=sink.name))
        if leaving:
            running.tasks.append(self.run("withdrawal", partial(self._withdraw_when_delivered, running, digest), record.key))
        log.info("identity.taken_up", identity=identity.name, source=about.source, provider=about.provider)
        return running

    def keep(self, keeper: Keeper, key: Key, places: Sequence[Sink] = ()) -> list[asyncio.Task[None]]:
        """Start the tasks that keep one key fresh; with `refresh.maxUse`, one of them withdraws a grant that was not renewed in time."""
        tasks = [self.run("refresh", partial(keeper.keep, key.variant, places), key)]
        if max_use := keeper.max_use:
            tasks.append(self.run("withdrawal", partial(limit_use, key, max_use, self._store, self._toolbox.clock), key))
        return tasks

    def run(self, kind: TaskKind, work: Work, key: Key, *, to: str = "") -> asyncio.Task[None]:
        """Start a task of an identity."""
        return self._tasks.start(kind, work, key, to=to)

    def sinks(self, identity: Identity, uid: str = "") -> list[Sink]:
        """Build the sinks of an identity whose ServiceAccount has this UID."""
        digest = self._digest(identity, uid)
        return [sinks.build(settings, identity.name, digest, self._toolbox) for settings in identity.sinks]

    def authorization(self, identity: Identity) -> Secret | None:
        """Return the value that clients have to send, as far as it is known; None if the identity is not served."""
        if not identity.serve.dialects:
            return None
        text = identity.serve.authorization
        return Secret(authorization(text, self._environ)) if text else self.authorizations.known(identity.name)

    async def announce(self, identity: Identity) -> None:
        """Write the authorization to the sinks before the principal is known."""
        places = self.sinks(identity)
        await self._share_authorization(identity, places)
        for sink in places:
            await close(sink)

    async def withdraw_leaving(self, running: RunningIdentity, sink: Sink) -> None:
        """Withdraw from a sink under earlier settings."""
        await withdraw(sink)
        self._toolbox.counters.retire((sink.name,))
        running.leaving = [other for other in running.leaving if other is not sink]

    async def _withdraw_when_delivered(self, running: RunningIdentity, digest: str) -> None:
        """Withdraw from the sinks under earlier settings, once the new ones hold what the workload needs."""
        name = running.identity.name
        while True:
            grant = self._store.newest(Key(name))
            if grant and grant.digest == digest and self._store.delivered(name, self._toolbox.clock.now()):
                break
            if (record := self._store.record(Key(name))) and record.ended:
                break  # the identity ended, whatever its settings
            await self._toolbox.clock.wait(self._store.news, STEP)
        for sink in list(running.leaving):
            await self.withdraw_leaving(running, sink)

    async def _share_authorization(self, identity: Identity, places: list[Sink]) -> Secret | None:
        """Return the value that clients have to send: the configured one, else one that the sinks hold, a new one at last."""
        if identity.serve.dialects and not identity.serve.authorization:
            return await self.authorizations.share(identity.name, places)
        return self.authorization(identity)

    def _digest(self, identity: Identity, uid: str) -> str:
        """Return the identity's digest, with the UID only if it came with the principal.

        Otherwise adoption compares the UID, because the agent may not know it.
        """
        return identity_digest(identity, self.config, uid if identity.name in self._followed else "", self._files)

    def _source(self, identity: Identity) -> Source:
        source = sources.build(identity.source, identity.name, self._toolbox)
        return source if not isinstance(identity.source, FileSettings) else TenantSource(source, identity.name, self.config.tenancy)
