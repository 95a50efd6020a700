"""Files of identities that are no longer delivered there: removed from the configuration while the agent was down, or moved.

The ledger says where they were. The agent retries a removal that fails because a disk does not answer or a sink holds the directory.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

import structlog

from agent.config.model import Identity
from agent.errors import RefreshError
from agent.identities.authorization import FILE, is_of
from agent.identities.ledger import Delivered, Ledger
from agent.identities.withdrawal import WITHDRAWAL_TIMEOUT_SECONDS
from agent.model import Location
from agent.offload import in_thread
from agent.sinks import canonical
from agent.sinks.files import orphan
from agent.store import Store
from agent.toolbox import Toolbox

log = structlog.get_logger()

RETRY_SECONDS = 10.0


def delivered(identity: Identity) -> list[Delivered]:
    """Return where the configuration delivers it."""
    return [Delivered.to(sink.location, identity.name) for sink in identity.sinks]


class Orphans:
    """All of them."""

    def __init__(self, ledger: Ledger, store: Store, toolbox: Toolbox, configured: Callable[[], Mapping[str, Identity]]) -> None:
        """`configured`: the identities as configured at this moment."""
        self._ledger = ledger
        self._store = store
        self._clock = toolbox.clock
        self._configured = configured
        self._under_way: set[Delivered] = set()
        """Entries whose thread has not returned from the disk."""
        self._told: set[Delivered] = set()
        self.changed = asyncio.Event()
        """Set when the configuration has changed."""

    async def run(self) -> None:
        """Withdraw what is left, and retry what could not be withdrawn; for ever."""
        while True:
            self.changed.clear()
            left = [place for place in self.left() if self._may_go(place)]
            await asyncio.gather(*(self._withdraw(place) for place in left))
            await self._ledger.save()
            await self._clock.wait(self.changed, RETRY_SECONDS)

    async def make_way(self, locations: Collection[Location]) -> None:
        """Withdraw what is left in these places at once: another identity is to be delivered there."""
        await asyncio.gather(*(self._withdraw(place) for place in self.left() if canonical(place.location) in locations))

    def left(self) -> list[Delivered]:
        """Places in the ledger at which the configuration delivers their identity no longer."""
        wanted = {place for identity in self._configured().values() for place in delivered(identity)}
        unknown = sorted(self._ledger.delivered - wanted)
        names = {place.identity for place in unknown}
        spelled = {(place.identity, canonical(place.location)) for place in wanted if place.identity in names}  # by another path
        return [place for place in unknown if (place.identity, canonical(place.location)) not in spelled]

    def _may_go(self, place: Delivered) -> bool:
        """An identity that moved keeps its old files until it is delivered at its new place."""
        if place.identity not in self._configured() or place.identity in self._ledger.revoked:
            return True
        return self._store.profile(place.identity) is not None and self._store.delivered(place.identity, self._clock.now())

    async def _withdraw(self, place: Delivered) -> None:
        if place in self._under_way:
            return
        if place.kind != "files":
            self._tell(place, f"this agent has no sink of kind {place.kind!r}")  # a newer agent wrote it
            return
        self._under_way.add(place)

        def work() -> bool:
            try:
                return orphan.remove(place.place, place.identity, beside=FILE, is_identitys=lambda text: is_of(text, place.identity))
            finally:
                self._under_way.discard(place)

        try:
            async with asyncio.timeout(WITHDRAWAL_TIMEOUT_SECONDS):
                removed = await in_thread(f"withdraw {place.identity}", work)
        except (OSError, RefreshError, TimeoutError) as error:
            self._tell(place, getattr(error, "strerror", None) or str(error) or "the disk has not answered")
            return
        if removed:
            log.info("orphan.withdrawn", identity=place.identity, sink=str(place.location))
        self._forget(place)

    def _forget(self, place: Delivered) -> None:
        self._told.discard(place)
        self._ledger.delivered -= {place}

    def _tell(self, place: Delivered, reason: str) -> None:
        if place not in self._told:
            self._told.add(place)
            log.warning("orphan.not_withdrawn", identity=place.identity, sink=str(place.location), error=reason)
