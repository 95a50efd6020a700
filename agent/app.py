"""The composition root: one configuration becomes parts, and the parts become tasks in one flat group.

Shutdown is cancellation of that group; whatever was opened closes behind it.
"""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

import structlog

from agent.clock import Clock, WallClock
from agent.config.model import Config, own_ports
from agent.config.reload import Reloader
from agent.counters import Counters
from agent.http.session import Session
from agent.identities.ledger import Ledger
from agent.identities.supervisor import Supervisor
from agent.identities.suspension import Suspensions
from agent.kube.clients import KubeClients
from agent.model import Key
from agent.serviceaccounts.events import EventRecorder
from agent.serving.capacity import Capacity
from agent.settings import Address
from agent.store import Store
from agent.tasks import Tasks
from agent.toolbox import Issuer, Resources, Toolbox

if TYPE_CHECKING:
    from agent.issuer.keyring import Keyring
    from agent.issuer.read_only import ReadOnlyKeyring

log = structlog.get_logger()

STARTUP_SECONDS = 5.0
"""After these all modules are loaded, and garbage collection starts."""


class _Stopped(Exception):  # noqa: N818  # no error: it ends the group
    """The daemon was asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that `run` and `once` share."""

    store: Store
    toolbox: Toolbox
    counters: Counters
    keyring: "Keyring | ReadOnlyKeyring | None"
    """Of the embedded issuer."""


async def serve(path: Path, config: Config, environ: Mapping[str, str]) -> None:
    """Run the daemon until SIGTERM or SIGINT. Raises ConfigError if a listener or a file cannot be opened."""
    clock = WallClock()
    stop, now = asyncio.Event(), asyncio.Event()

    def stopping() -> None:
        (now if stop.is_set() else stop).set()

    _on_signals({signal.SIGTERM: stopping, signal.SIGINT: stopping})
    try:
        async with _parts(config, clock, environ) as parts, AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            tasks = Tasks(group, parts.store, parts.toolbox)
            ledger = Ledger(Path(config.control.ledger_path), socket="" if config.control.ledger else config.control.socket)
            stack.callback(ledger.close)
            await ledger.open()
            supervisor = Supervisor(parts.store, parts.toolbox, tasks, environ, ledger)
            stack.push_async_callback(supervisor.close)
            reloader = Reloader(path, environ, config, supervisor.apply, clock)
            _on_signals({signal.SIGHUP: reloader.asked.set, signal.SIGUSR1: lambda: _renew_all(parts.store, clock)})
            capacity = Capacity()
            await _publish(stack, config, parts, capacity)
            await supervisor.apply(config)
            await _listen(stack, config, parts, clock, reloader, tasks, capacity, supervisor.suspensions)
            group.create_task(tasks.watch(), name="watch tasks")
            tasks.start("variants", supervisor.run_variants)
            tasks.start("withdrawal", supervisor.orphans.run)
            tasks.start("reload", reloader.run)
            recorder = EventRecorder(parts.store, parts.toolbox, lambda: supervisor.identities, supervisor.bound.uid)
            tasks.start("events", recorder.run)
            if parts.keyring:
                tasks.start("issuer", parts.keyring.run)
            asyncio.get_running_loop().call_later(STARTUP_SECONDS, _collect)
            log.info("agent.started", identities=len(config.identities), control=config.control.socket)
            await stop.wait()
            delay = reloader.running.shutdown.delay.seconds
            log.info("agent.stopping", delay=delay)
            await clock.wait(now, delay)
            raise _Stopped  # noqa: TRY301
    except* _Stopped:
        log.info("agent.stopped")


async def once(config: Config, environ: Mapping[str, str], limit: float) -> list[str]:
    """Deliver every identity once, within `limit` seconds; return a reason for each that was not delivered."""
    clock = WallClock()
    undelivered: list[str] = []
    try:
        async with _parts(config, clock, environ) as parts, AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            ledger = Ledger(Path(config.control.ledger_path))
            await ledger.open(keep=False)
            supervisor = Supervisor(parts.store, parts.toolbox, Tasks(group, parts.store, parts.toolbox), environ, ledger)
            stack.push_async_callback(supervisor.close)
            asyncio.get_running_loop().call_later(STARTUP_SECONDS, _collect)
            await supervisor.apply(config)
            try:
                async with asyncio.timeout(limit):
                    while _undelivered(parts.store, clock):
                        await parts.store.change()
            except TimeoutError:
                undelivered = _undelivered(parts.store, clock)
            raise _Stopped  # noqa: TRY301
    except* _Stopped:
        pass
    return undelivered


@asynccontextmanager
async def _parts(config: Config, clock: Clock, environ: Mapping[str, str]) -> AsyncIterator[Parts]:
    async with AsyncExitStack() as stack:
        counters = Counters()
        session = await stack.enter_async_context(Session())
        issuer = keyring = None
        if config.issuer:
            from agent.issuer.discovery import keyring_of  # noqa: PLC0415  # cryptography, only where there is an issuer

            keyring = keyring_of(config.issuer, clock)
            await stack.enter_async_context(keyring)
            issuer = Issuer(url=config.issuer.url.text, keys=keyring.keys)
        resources = await stack.enter_async_context(Resources(session.get))
        kube = await stack.enter_async_context(KubeClients(clock, environ))
        toolbox = Toolbox(
            clock=clock, random=SystemRandom(), counters=counters, http=session.get, issuer=issuer, resources=resources, kube=kube
        )
        yield Parts(store=Store(), toolbox=toolbox, counters=counters, keyring=keyring)


async def _publish(stack: AsyncExitStack, config: Config, parts: Parts, capacity: Capacity) -> None:
    """Serve the issuer's documents before any token is sent: a cloud fetches them at once."""
    issuer = parts.toolbox.issuer
    if config.issuer and issuer:
        from agent.serving.discovery import answering  # noqa: PLC0415  # aiohttp.web, which `once` does without
        from agent.serving.listener import listening  # noqa: PLC0415  # the same

        answer = answering(config.issuer.url.text, issuer.keys)
        await stack.enter_async_context(listening(answer, config.issuer.listen, "issuer", capacity=capacity))


async def _listen(
    stack: AsyncExitStack,
    config: Config,
    parts: Parts,
    clock: Clock,
    reloader: Reloader,
    tasks: Tasks,
    capacity: Capacity,
    suspensions: Suspensions,
) -> None:
    from agent.metrics import Collector, expose  # noqa: PLC0415  # prometheus_client and aiohttp.web, which `once` does without
    from agent.serving.admin import AdminEndpoint  # noqa: PLC0415
    from agent.serving.control import ControlEndpoint  # noqa: PLC0415
    from agent.serving.listener import listening  # noqa: PLC0415

    collector = Collector(parts.store, parts.counters, clock, reloader, parts.toolbox.issuer.keys.states if parts.toolbox.issuer else tuple)
    control = ControlEndpoint(
        parts.store, clock, lambda: reloader.refused, tasks.failures, suspensions, restart_needed=lambda: reloader.restart_needed
    )
    await stack.enter_async_context(listening(control.answer, [Address("", 0, config.control.socket)], "control", capacity=capacity))
    if any(identity.serve.dialects for identity in config.identities):
        from agent.serving.metadata import MetadataEndpoint  # noqa: PLC0415

        metadata = MetadataEndpoint(parts.store, clock, parts.counters, config.metadata.listen)
        await stack.enter_async_context(
            listening(metadata.answer, config.metadata.listen, "metadata", socket_mode=0o660, capacity=capacity)
        )
        for name, addresses in own_ports(config).items():
            await stack.enter_async_context(listening(metadata.answering(name), addresses, f"serve.port of {name}", capacity=capacity))
    admin = AdminEndpoint(parts.store, clock, partial(expose, collector), tasks.unwell)
    await stack.enter_async_context(listening(admin.answer, config.admin.listen, "admin", capacity=capacity))


def _collect() -> None:
    """From now on; what is there by now are modules, which are never garbage, and looking through them each time costs 40 ms."""
    gc.freeze()
    gc.enable()


def _renew_all(store: Store, clock: Clock) -> None:
    for profile in store.profiles():
        store.renew(profile.name, clock.now())


def _undelivered(store: Store, clock: Clock) -> list[str]:
    reasons = []
    for profile in store.profiles():
        if store.delivered(profile.name, clock.now()):
            continue
        record = store.record(Key(profile.name))
        failures = [record.failure, *(sink_status.failure for sink_status in record.sink_statuses.values())] if record else []
        said = [f"{failure.message}{f' ({failure.remedy})' if failure.remedy else ''}" for failure in failures if failure]
        reasons.append("; ".join(said) or f"{profile.name}: not delivered in time")
    return reasons


def _on_signals(actions: Mapping[signal.Signals, Callable[[], object]]) -> None:
    loop = asyncio.get_running_loop()
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
