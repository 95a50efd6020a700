"""The identities that are whoever their ServiceAccount says: taken up, withdrawn and taken up anew as it changes.

What was granted to one principal is gone from files and endpoint before another is asked for, also what an earlier process
left behind. Only where the operator changes the settings does the old stay until the new is there, as for any identity.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import structlog

from agent import providers
from agent.config import Identity
from agent.departure import PATIENCE, close, withdraw
from agent.errors import NotReady, RefreshError
from agent.follower import Follower
from agent.model import Key, Secret, Sink
from agent.particulars import vacant
from agent.principal import Sighting, followed
from agent.store import Store
from agent.tally import TaskKind
from agent.tasks import Work
from agent.toolbox import Toolbox

log = structlog.get_logger()

UNSEEN = "its ServiceAccount cannot be seen"


class Crew(Protocol):
    """Who runs identities."""

    def running(self, name: str) -> tuple[Identity, str] | None:
        """As whom the identity runs, and by which ServiceAccount's UID; None where it does not."""

    async def take_up(self, identity: Identity, leaving: list[Sink], uid: str = "") -> None:
        """Runs it; `leaving` is withdrawn once the new has been delivered."""

    async def dismiss(self, name: str, instead: Callable[[], None]) -> None:
        """Ends it, and takes away what it held and wrote, but not what its clients present, for it is expected back.

        Between the two, `instead` says what there is in its place.
        """

    def places(self, identity: Identity, uid: str = "") -> list[Sink]:
        """Where it is written, for whom it would be by this UID; new ones each time."""

    def authorization(self, identity: Identity) -> Secret | None:
        """What its clients have to present, as far as that is known."""

    def run(self, kind: TaskKind, work: Work, key: Key) -> asyncio.Task[None]:
        """A task in the one group, started again after it has raised."""


class Former(NamedTuple):
    """What an identity was before the operator changed its settings."""

    leaving: list[Sink]
    """Where it lies until the new is delivered."""
    follower: Follower | None


class Following:
    """All of them."""

    def __init__(self, crew: Crew, store: Store, toolbox: Toolbox) -> None:
        self._crew = crew
        self._store = store
        self._toolbox = toolbox
        self._followers: dict[str, Follower] = {}
        self._former: dict[str, Former] = {}
        self._empty: set[str] = set()
        """Those of whom nothing lies anywhere, as far as we know."""

    def __contains__(self, name: str) -> bool:
        return name in self._followers

    def begin(self, identity: Identity, former: Former | None) -> None:
        """Follows it from now on; where it held something under other settings, that stays until there is something new."""
        if former:
            self._former[identity.name] = former
        else:
            self._enrol(identity, NotReady(f"{identity.name}: its ServiceAccount has not been seen yet"))
        follower = self._followers[identity.name] = Follower(identity, self, self._toolbox)
        follower.task = self._crew.run("serviceaccount", follower.follow, Key(identity.name))

    async def leave(self, name: str) -> Former | None:
        """Follows it no more; what there was of it is the caller's. None where it held nothing."""
        former, follower = self._former.pop(name, None), self._followers.pop(name, None)
        if follower and follower.task:
            async with follower.turn:
                follower.task.cancel()
            await asyncio.gather(follower.task, return_exceptions=True)
        self._empty.discard(name)
        if self._crew.running(name):
            return Former([], follower)
        return former

    def uid(self, name: str) -> str:
        """Of the ServiceAccount as it was seen last; empty where it was not."""
        follower = self._followers.get(name)
        return follower.sighting.uid if follower and follower.sighting else ""

    # what followers tell

    async def settle(self, identity: Identity, uid: str) -> None:
        name = identity.name
        former = self._former.pop(name, None)
        if running := self._crew.running(name):
            if running == (identity, uid):
                self.seen(identity)
                return
            changed = NotReady(f"{name}: its ServiceAccount is another, or says another principal")
            await self._crew.dismiss(name, lambda: self._enrol(identity, changed))
        elif former is None or self._another(name, former):
            if name not in self._empty:
                await self._clear(identity, former, uid)
            self._store.forget(name)
            self._enrol(identity, None)  # at no moment is it unknown, or readiness and `once` would do without it
            former = None
        self._empty.discard(name)
        await self._crew.take_up(identity, former.leaving if former else [], uid)

    async def vacate(self, identity: Identity, error: RefreshError) -> None:
        name = identity.name
        former = self._former.pop(name, None)
        if self._crew.running(name):
            await self._crew.dismiss(name, lambda: self._enrol(identity, error))
        elif name not in self._empty:
            self._store.forget(name)
            self._enrol(identity, error)
            await self._clear(identity, former)
        else:
            self._enrol(identity, error)
        self._empty.add(name)

    def unseen(self, identity: Identity, error: RefreshError) -> None:
        record = self._store.record(Key(identity.name))
        if record and (self._crew.running(identity.name) or identity.name in self._former):
            record.note = f"{UNSEEN}: {error.message}; what was seen last holds"
        elif identity.name not in self._empty:
            self._enrol(identity, error)

    def seen(self, identity: Identity) -> None:
        record = self._store.record(Key(identity.name))
        if record and record.note.startswith(UNSEEN):
            record.note = ""

    def _enrol(self, identity: Identity, error: RefreshError | None) -> None:
        """It is known, `missing`, and why."""
        profile = vacant(identity, tuple(place.name for place in self._crew.places(identity)), self._crew.authorization(identity))
        if self._store.profile(identity.name) != profile:
            self._store.enrol(profile)
        if error:
            self._store.attempted(Key(identity.name), error, self._toolbox.clock.now())

    def _another(self, name: str, former: Former) -> bool:
        """Whether the same ServiceAccount says another principal now, or is another."""
        before, now = former.follower, self._followers.get(name)
        if before is None or now is None or before.sighting is None or now.sighting is None:
            return False
        if _place(before.identity) != _place(now.identity):
            return False  # the operator chose another
        return _principal(before) != _principal(now)

    async def _clear(self, identity: Identity, former: Former | None, uid: str | None = None) -> None:
        """Takes away what lies in its places, unless it is of this very principal; then it can be adopted."""
        for sink in former.leaving if former else ():
            await withdraw(sink)
        for place in self._crew.places(identity, uid or ""):
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
