"""The identities that are whoever their ServiceAccount says: taken up, withdrawn and taken up anew as it changes.

What was granted to one principal is gone from files and endpoint before another is asked for, also what an earlier process
left behind. Only where the operator changes the settings does the old stay until the new is there, as for any identity.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog

from agent import providers
from agent.config import Identity
from agent.departure import PATIENCE, close, withdraw
from agent.errors import NotReady, RefreshError
from agent.follower import Follower
from agent.model import Key, Sink
from agent.particulars import vacant
from agent.principal import Sighting, followed
from agent.store import Store
from agent.toolbox import Toolbox
from agent.wanted import Bound, Unbound, Unreachable, Wanted

if TYPE_CHECKING:
    from agent.fleet import Fleet

log = structlog.get_logger()

UNSEEN = "its ServiceAccount cannot be seen"


class Former(NamedTuple):
    """What an identity was before the operator changed its settings."""

    leaving: list[Sink]
    """Where it lies until the new is delivered."""
    follower: Follower | None


class Watching(NamedTuple):
    """One identity's watcher, and the task that carries out what it reports."""

    follower: Follower
    turn: asyncio.Lock
    """Held while a change is carried out, so that a reload does not end it half done."""
    task: asyncio.Task[None]


class Following:
    """All of them."""

    def __init__(self, fleet: "Fleet", store: Store, toolbox: Toolbox) -> None:
        self._fleet = fleet
        self._store = store
        self._toolbox = toolbox
        self._watching: dict[str, Watching] = {}
        self._former: dict[str, Former] = {}
        self._empty: set[str] = set()
        """Those of which no sink holds anything, as far as we know."""

    def __contains__(self, name: str) -> bool:
        return name in self._watching

    def begin(self, identity: Identity, former: Former | None) -> None:
        """Follows it from now on; where it held something under other settings, that stays until there is something new."""
        name = identity.name
        if former:
            self._former[name] = former
        else:
            self._enrol(identity, NotReady(f"{name}: its ServiceAccount has not been seen yet"))
        follower, turn = Follower(identity, self._toolbox), asyncio.Lock()
        self._watching[name] = Watching(follower, turn, self._fleet.run("serviceaccount", partial(self._follow, follower, turn), Key(name)))

    async def leave(self, name: str) -> Former | None:
        """Follows it no more; what there was of it is the caller's. None where it held nothing."""
        former, watching = self._former.pop(name, None), self._watching.pop(name, None)
        if watching:
            async with watching.turn:
                watching.task.cancel()
            await asyncio.gather(watching.task, return_exceptions=True)
        self._empty.discard(name)
        if self._fleet.running(name):
            return Former([], watching.follower if watching else None)
        return former

    def uid(self, name: str) -> str:
        """Of the ServiceAccount as it was seen last; empty where it was not."""
        watching = self._watching.get(name)
        return watching.follower.sighting.uid if watching and watching.follower.sighting else ""

    async def reconcile(self, identity: Identity, wanted: Wanted) -> None:
        """Make what runs be what is wanted: what another principal was granted is withdrawn before the next one starts."""
        if isinstance(wanted, Unreachable):
            self._unreachable(identity, wanted.error)
            return
        name = identity.name
        former, running = self._former.pop(name, None), self._fleet.running(name)
        if isinstance(wanted, Bound) and running == (wanted.identity, wanted.uid):
            self._seen(identity)
            return
        keeps = isinstance(wanted, Bound) and running is None and former is not None and not self._another(name, former)
        if not keeps:
            await self._withdraw(wanted.identity if isinstance(wanted, Bound) else identity, former, wanted)
        if isinstance(wanted, Unbound):
            self._empty.add(name)
            return
        self._empty.discard(name)
        await self._fleet.take_up(wanted.identity, former.leaving if keeps and former else [], wanted.uid)

    async def _follow(self, follower: Follower, turn: asyncio.Lock) -> None:
        async with aclosing(follower.wanted()) as reports:  # the watch's connection ends with this task
            async for wanted in reports:
                async with turn:
                    await self.reconcile(follower.identity, wanted)

    async def _withdraw(self, identity: Identity, former: Former | None, wanted: Bound | Unbound) -> None:
        """Take away what the identity held; until it is granted something it is `missing`, at no moment unknown."""
        name, error = identity.name, wanted.error if isinstance(wanted, Unbound) else None
        if self._fleet.running(name):
            changed = error or NotReady(f"{name}: its ServiceAccount is another, or says another principal")
            await self._fleet.dismiss(name, lambda: self._enrol(identity, changed))
            return
        self._store.forget(name)
        self._enrol(identity, error)
        if name not in self._empty:
            await self._clear(identity, former, wanted.uid if isinstance(wanted, Bound) else None)

    def _unreachable(self, identity: Identity, error: RefreshError) -> None:
        record = self._store.record(Key(identity.name))
        if record and (self._fleet.running(identity.name) or identity.name in self._former):
            record.note = f"{UNSEEN}: {error.message}; what was seen last holds"
        elif identity.name not in self._empty:
            self._enrol(identity, error)

    def _seen(self, identity: Identity) -> None:
        record = self._store.record(Key(identity.name))
        if record and record.note.startswith(UNSEEN):
            record.note = ""

    def _enrol(self, identity: Identity, error: RefreshError | None) -> None:
        """It is known, `missing`, and why."""
        profile = vacant(identity, tuple(place.name for place in self._fleet.places(identity)), self._fleet.authorization(identity))
        if self._store.profile(identity.name) != profile:
            self._store.enrol(profile)
        if error:
            self._store.attempted(Key(identity.name), error, self._toolbox.clock.now())

    def _another(self, name: str, former: Former) -> bool:
        """Whether the same ServiceAccount says another principal now, or is another."""
        before, watching = former.follower, self._watching.get(name)
        now = watching.follower if watching else None
        if before is None or now is None or before.sighting is None or now.sighting is None:
            return False
        if _place(before.identity) != _place(now.identity):
            return False  # the operator chose another
        return _principal(before) != _principal(now)

    async def _clear(self, identity: Identity, former: Former | None, uid: str | None = None) -> None:
        """Takes away what lies in its places, unless it is of this very principal; then it can be adopted."""
        for sink in former.leaving if former else ():
            await withdraw(sink)
        for place in self._fleet.places(identity, uid or ""):
            if uid is not None and await _holds(place):
                await close(place)
            else:
                await withdraw(place, retained=False)


async def _holds(place: Sink) -> bool:
    """Whether what lies there was granted to this very identity: its digest says so, in which UID and principal are."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await place.read() is not None
    except Exception as error:  # noqa: BLE001  # what cannot be read is nobody's
        log.warning("delivery.not_read", sink=place.name, error=str(error) or type(error).__name__)
        return False


def _place(identity: Identity) -> tuple[str, str] | None:
    account = followed(identity)
    return (account.namespace, account.name) if account else None


def _principal(follower: Follower) -> tuple[str, Sequence[str]]:
    sighting: Sighting = follower.sighting or Sighting("", {})
    wanted: Mapping[str, str] = providers.annotations(follower.identity.provider)
    return sighting.uid, [sighting.annotations.get(annotation, "") for annotation in wanted]
