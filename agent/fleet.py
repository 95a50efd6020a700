"""The identities that run: takes them up, changes them, lets them go, as the configuration says.

Each identity is a keeper and its couriers, tasks in the one flat group of `app.py`.
"""

import asyncio
import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from agent import providers, sinks, sources
from agent.authorization import shared
from agent.config import Config, Identity, identity_digest
from agent.courier import Courier
from agent.departure import close, whereabouts, withdraw
from agent.facts import facts
from agent.gate import Gate
from agent.keeper import Habits, Keeper
from agent.margins import credential_margin, token_margin
from agent.model import Key, Secret, Sink
from agent.reading.rules.identities import authorization
from agent.record import Profile
from agent.schedule import Backoff, Policy
from agent.sources.kubernetes import KubernetesSettings
from agent.store import Store
from agent.toolbox import Toolbox

log = structlog.get_logger()

FILE_AT = 0.9
"""Share of a token's lifetime after which a file that somebody else renews is looked at as due: kubelet begins at 0.8
and acts at the pod's next sync, 60 to 90 s later."""


@dataclass(slots=True)
class Member:
    """One running identity."""

    identity: Identity
    keeper: Keeper
    sinks: list[Sink]
    leaving: list[Sink]
    """Where it lay under earlier settings, until it is delivered under these."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Fleet:
    """All running identities."""

    def __init__(self, store: Store, toolbox: Toolbox, group: asyncio.TaskGroup, environ: Mapping[str, str]) -> None:
        self._store = store
        self._toolbox = toolbox
        self._group = group
        self._environ = environ
        self._gate = Gate(16)
        self._config = Config()
        self._members: dict[str, Member] = {}

    async def apply(self, config: Config) -> None:
        """Makes what runs be what the configuration says; what did not change is not touched."""
        wanted = {identity.name: identity for identity in config.identities}
        same = config.refresh == self._config.refresh and config.issuer == self._config.issuer
        if config.refresh.concurrency != self._config.refresh.concurrency or not self._members:
            self._gate = Gate(config.refresh.concurrency)
        gone = [name for name in self._members if name not in wanted]
        changed = [name for name, member in self._members.items() if name in wanted and not (same and member.identity == wanted[name])]
        self._config = config
        for name in gone:
            await self._dismiss(name)
        taken = {whereabouts(f"files:{sink.directory}"): identity.name for identity in config.identities for sink in identity.sinks}
        leaving = {name: await self._halt(name, taken) for name in changed}
        for member in self._members.values():
            for sink in [sink for sink in member.leaving if whereabouts(sink.name) in taken]:
                await self._leave(member, sink)
        for name, identity in wanted.items():
            if name not in self._members:
                await self._take_up(identity, leaving.get(name, []))

    async def welcome(self) -> None:
        """Gives run-time variants a keeper; for ever."""
        while True:
            key = await self._store.newcomers.get()
            if member := self._members.get(key.identity):
                member.tasks = [task for task in member.tasks if not task.done()]
                member.tasks.append(self._run(member.keeper.keep(key.variant), f"keep {key.identity} {key.variant}"))

    async def close(self) -> None:
        """Lets go of every place, leaving what was written."""
        for member in self._members.values():
            for sink in [*member.sinks, *member.leaving]:
                await close(sink)

    async def _take_up(self, identity: Identity, leaving: list[Sink]) -> None:
        tools = self._toolbox
        digest = identity_digest(identity, self._config)
        places = [sinks.build(settings, identity.name, digest, tools) for settings in identity.sinks]
        profile = _profile(identity, self._config, digest, places, await self._authorization(identity, places))
        record = self._store.enrol(profile)
        keeper = Keeper(
            profile,
            sources.build(identity.source, identity.name, tools),
            providers.build(identity.provider, identity.name, tools),
            habits=_habits(identity, self._config),
            store=self._store,
            gate=self._gate,
            clock=tools.clock,
            random=tools.random,
            tally=tools.tally,
        )
        member = self._members[identity.name] = Member(identity, keeper, places, leaving)
        member.tasks = [self._run(keeper.keep(sinks=places), f"keep {identity.name}"), self._run(keeper.watch(), f"watch {identity.name}")]
        member.tasks += [
            self._run(keeper.keep(other.key.variant), f"keep {identity.name} {other.key.variant}")
            for other in self._store.records(identity.name)
            if other is not record
        ]
        for place in places:
            courier = Courier(identity.name, place, store=self._store, clock=tools.clock, random=tools.random, tally=tools.tally)
            member.tasks.append(self._run(courier.carry(), f"carry {identity.name} to {place.name}"))
        if leaving:
            member.tasks.append(self._run(self._see_off(member, digest), f"see off {identity.name}"))
        log.info("identity.taken_up", identity=identity.name, source=profile.source, provider=profile.provider)

    async def _halt(self, name: str, taken: Mapping[str, str]) -> list[Sink]:
        """Stops an identity whose settings changed; returns its sinks that nobody has under the new settings.

        `taken`: the identity that each place belongs to from now on. Where it is another's, this one's files go at once.
        """
        member = self._members.pop(name)
        await _cancel(member.tasks)
        leaving = []
        for sink in [*member.sinks, *member.leaving]:
            heir = taken.get(whereabouts(sink.name))
            if heir is None:
                leaving.append(sink)
            else:
                await (close if heir == name else withdraw)(sink)
        return leaving

    async def _see_off(self, member: Member, digest: str) -> None:
        """Withdraws from places that are no longer wanted, once the new ones have what the workload needs."""
        name = member.identity.name
        while True:
            grant = self._store.newest(Key(name))
            if grant and grant.digest == digest and self._store.delivered(name, self._toolbox.clock.now()):
                break
            await self._store.change()
        for sink in list(member.leaving):
            await self._leave(member, sink)

    async def _leave(self, member: Member, sink: Sink) -> None:
        await withdraw(sink)
        self._toolbox.tally.retire((sink.name,))
        member.leaving = [other for other in member.leaving if other is not sink]

    async def _dismiss(self, name: str) -> None:
        """The identity is gone: its files and its place in the store go at once."""
        member = self._members.pop(name)
        await _cancel(member.tasks)
        self._store.forget(name)
        places = [*member.sinks, *member.leaving]
        self._toolbox.tally.forget(name, tuple(place.name for place in places))
        for place in places:
            await withdraw(place)
        log.info("identity.withdrawn", identity=name)

    async def _authorization(self, identity: Identity, places: list[Sink]) -> Secret | None:
        """What clients have to present: as configured, else kept from an earlier start, else made up now; it lies beside the files."""
        if not identity.serve.dialects:
            return None
        if text := identity.serve.authorization:
            return Secret(authorization(text, self._environ))
        return await shared(identity.name, places)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._group.create_task(work, name=name)


def _profile(identity: Identity, config: Config, digest: str, places: list[Sink], authorization: Secret | None) -> Profile:
    own, general = identity.refresh, config.refresh
    at = general.at if own.at is None else own.at
    jitter = general.jitter if own.jitter is None else own.jitter
    max_age = float((own.max_age or general.max_age).seconds)
    source, provider = _tag(identity.source), _tag(identity.provider)
    token = Policy(at=at, jitter=jitter, max_age=max_age, margin=token_margin(provider, written=bool(places)))
    if source == "file":
        token = Policy(at=max(at, FILE_AT), jitter=0.0, max_age=max_age)
    return Profile(
        name=identity.name,
        digest=digest,
        source=source,
        provider=provider,
        sinks=tuple(place.name for place in places),
        variants=tuple(providers.variants(identity.provider)),
        required=identity.required,
        dialects=identity.serve.dialects,
        authorization=authorization,
        default=identity.serve.default,
        facts=facts(identity),
        token_policy=token,
        credential_policy=Policy(at=at, jitter=jitter, max_age=max_age, margin=credential_margin(identity.serve.dialects)),
    )


def _habits(identity: Identity, config: Config) -> Habits:
    general = config.refresh
    return Habits(
        timeout=float((identity.refresh.timeout or general.timeout).seconds),
        backoff=Backoff(initial=float(general.backoff.initial.seconds), max=float(general.backoff.max.seconds)),
        namespace=_namespace(identity),
    )


def _namespace(identity: Identity) -> str:
    """The Kubernetes namespace of the identity, by its ServiceAccount or its subject; empty where there is none."""
    if isinstance(identity.source, KubernetesSettings):
        return identity.source.service_account.namespace
    found = re.fullmatch(r"system:serviceaccount:([^:]+):[^:]+", getattr(identity.source, "subject", ""))
    return found[1] if found else ""


def _tag(settings: Any) -> str:
    return str(settings.__struct_config__.tag)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
