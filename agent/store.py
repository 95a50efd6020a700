"""The store: what each identity holds and how it was delivered. Keepers and couriers write it; all others read it.

Nothing here touches a network or a disk. All methods run on the event loop, so no lock is needed.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agent.errors import NotReady, RefreshError, Rejected
from agent.model import Delivery, Grant, Key
from agent.record import Failure, Profile, Record, SinkStatus, WakeReason, held_state, serving_span, sink_state
from agent.schedule import State, worst

NEVER = datetime.min.replace(tzinfo=UTC)
VARIANTS = 16
"""Maximum of run-time variants of an identity at a time."""
VARIANT_REST = timedelta(seconds=10)
"""A run-time variant that no client has asked for in this time may be dropped for another. It bounds the exchanges, too, that a client
causes by asking for one variant after the other."""
RENEW_EVERY = timedelta(seconds=10)
"""A person may have one identity renewed no more often."""


class Store:
    """One for the process."""

    def __init__(self) -> None:
        self._profiles: dict[str, Profile] = {}
        self._records: dict[Key, Record] = {}
        self._news = asyncio.Event()
        self.newcomers: asyncio.Queue[Key] = asyncio.Queue()
        """Run-time variants that want a keeper."""

    # what there is

    def profiles(self) -> Iterable[Profile]:
        """Every identity of the configuration."""
        return self._profiles.values()

    def profile(self, name: str) -> Profile | None:
        """One of them, or None."""
        return self._profiles.get(name)

    def record(self, key: Key) -> Record | None:
        """Return the record of the key, or None."""
        return self._records.get(key)

    def records(self, name: str) -> Iterator[Record]:
        """An identity's records: its own, then its variants'."""
        return (record for key, record in list(self._records.items()) if key.identity == name)

    # who belongs

    def enrol(self, profile: Profile) -> Record:
        """Add an identity or its changed settings; its grant stays until a newer one replaces it.

        Failures under other settings are dropped: no keeper retries those, and they may be the reason for the change.
        """
        before = self._profiles.get(profile.name)
        if before and before.digest != profile.digest:
            for record in self.records(profile.name):
                record.failure = None
        self._profiles[profile.name] = profile
        record = self._records.setdefault(Key(profile.name), Record(Key(profile.name)))
        for key in (Key(profile.name, variant) for variant in profile.variants):
            self._records.setdefault(key, Record(key))
        record.sink_statuses = {sink: sink_status for sink, sink_status in record.sink_statuses.items() if sink in profile.sinks}
        self._tell(record)
        return record

    def forget(self, name: str) -> None:
        """Remove the identity and everything it held."""
        self._profiles.pop(name, None)
        for record in list(self.records(name)):
            self.drop(record.key)

    def drop(self, key: Key) -> None:
        """Remove one record: its readers wake up and its keeper ends."""
        record = self._records.pop(key, None)
        if record:
            record.grant = None
            record.wake.set()
            self._tell(record)

    # what keepers and couriers say

    def granted(self, grant: Grant) -> Grant:
        """Store a newer grant, number it, and wake its readers. The record must exist."""
        record = self._records[grant.key]
        record.generations += 1
        numbered = replace(grant, generation=record.generations)
        record.grant, record.ended = numbered, False
        self._tell(record)
        return numbered

    def end(self, key: Key) -> None:
        """End a grant that still works: couriers withdraw it, and its keeper goes on."""
        record = self._records.get(key)
        if record and not (record.ended and record.grant is None):
            record.grant, record.ended, record.endings = None, True, record.endings + 1
            self._tell(record)

    def end_all(self, name: str) -> None:
        """The same for an identity and all its variants."""
        for record in self.records(name):
            self.end(record.key)

    def attempted(self, key: Key, error: RefreshError | None, now: datetime) -> None:
        """One attempt of the keeper has ended, well or not."""
        if record := self._records.get(key):
            record.attempts += 1
            record.failure = _failure(error, now, record.failure) if error else None
            self._tell(record)

    def settled(self, key: Key) -> None:
        """Clear a failure: another loop has fetched what was due."""
        record = self._records.get(key)
        if record and record.failure:
            record.failure = None
            self._tell(record)

    def scheduled(self, key: Key, due: datetime) -> None:
        """When the keeper will act next."""
        if record := self._records.get(key):
            record.due = due

    def sink_checked(
        self,
        key: Key,
        sink: str,
        now: datetime,
        *,
        generation: int,
        delivery: Delivery | None,
        error: RefreshError | None = None,
        lost: bool = False,
    ) -> None:
        """What a courier found in its sink. `lost`: and that it no longer held what had been delivered."""
        record = self._records.get(key)
        if record is None:
            return
        before = record.sink_statuses.get(sink)
        failure = _failure(error, now, before.failure if before else None) if error else None
        record.sink_statuses[sink] = SinkStatus(
            checked_at=now,
            generation=generation,
            delivery=delivery,
            failure=failure,
            losses=(before.losses if before else 0) + lost,
            lost_at=now if lost else before.lost_at if before else None,
        )
        self._tell(record)

    # what readers ask

    def newest(self, key: Key) -> Grant | None:
        """Return the key's grant, expired or not, or None."""
        record = self._records.get(key)
        return record.grant if record else None

    def usable(self, key: Key, now: datetime) -> Grant | None:
        """Return the key's grant if it still works."""
        grant = self.newest(key)
        span = grant and serving_span(grant)
        return grant if span and span.expires_at > now else None

    async def want(self, key: Key, now: datetime, seconds: float) -> Grant:
        """Return a grant that works: the current one, or one that arrives within `seconds`.

        Asking wakes the keeper, except from its back-off: a herd cannot make a storm. Raises NotReady with why
        there is none, Rejected for an identity that does not exist or one variant too many. Of too many variants, the one
        used least recently is dropped, unless it has just been used.
        """
        record = self._records.get(key) or self.open_variant(key, now)
        record.used_at = now
        if grant := self.usable(key, now):
            return grant
        if record.failure is None:
            self._ask(record, WakeReason.WANTED)
        try:
            async with asyncio.timeout(seconds):
                while self._records.get(key) is record:
                    await record.news.wait()
                    if record.grant and (span := serving_span(record.grant)) and span.expires_at > now:
                        return record.grant
        except TimeoutError:
            pass
        why = record.failure.message if record.failure else record.note or "its first credential is on the way"
        raise NotReady(f"{key.identity}: nothing to hand out yet: {why}")

    def renew(self, name: str, now: datetime) -> bool:
        """Asks for a refresh now, of the identity and its variants; False where one was asked for too recently.

        Raises Rejected for an identity that does not exist.
        """
        records = list(self.records(name))
        if not records:
            raise Rejected(f"there is no identity {name}")
        if any(record.renewed_at and timedelta(0) <= now - record.renewed_at < RENEW_EVERY for record in records):
            return False
        for record in records:
            record.renewed_at = now
            self._ask(record, WakeReason.RENEW)
        return True

    def nudge(self, key: Key) -> None:
        """The source may have something newer."""
        if record := self._records.get(key):
            self._ask(record, WakeReason.CHANGED)

    async def change(self) -> None:
        """Returns at the next change of anything."""
        await self._news.wait()

    @property
    def news(self) -> asyncio.Event:
        """Set at the next change of anything; another one after that."""
        return self._news

    # how it stands

    def state(self, name: str, now: datetime) -> State:
        """The worst over {token, credential} and {held, each sink's last read-back}."""
        profile, record = self._profiles[name], self._records[Key(name)]
        if record.grant is None:
            return State.MISSING
        return worst([held_state(record.grant, profile, now), *(sink_state(record, sink, profile, now) for sink in profile.sinks)])

    def delivered(self, name: str, now: datetime) -> bool:
        """Return whether every sink stores it, and nothing of that has expired."""
        return self.state(name, now) not in {State.MISSING, State.EXPIRED}

    def ready(self, now: datetime) -> bool:
        """Whether every required identity is delivered."""
        return all(self.delivered(profile.name, now) for profile in self._profiles.values() if profile.required)

    # inside

    def open_variant(self, key: Key, now: datetime | None = None) -> Record:
        profile = self._profiles.get(key.identity)
        if profile is None:
            raise Rejected(f"there is no identity {key.identity}")
        variants = [record for record in self.records(key.identity) if record.key.variant not in {"", *profile.variants}]
        if len(variants) >= VARIANTS:
            oldest = min(variants, key=lambda record: record.used_at or NEVER)
            if now is None or now - (oldest.used_at or NEVER) < VARIANT_REST:
                raise Rejected(
                    f"{key.identity}: more than {VARIANTS} variants at a time", remedy="ask for fewer different scopes or resources"
                )
            self.drop(oldest.key)
        record = self._records[key] = Record(key)
        self.newcomers.put_nowait(key)
        return record

    def _ask(self, record: Record, reason: WakeReason) -> None:
        record.asked.add(reason)
        record.wake.set()

    def _tell(self, record: Record) -> None:
        record.news.set()
        record.news = asyncio.Event()
        self._news.set()
        self._news = asyncio.Event()


def _failure(error: RefreshError, now: datetime, before: Failure | None) -> Failure:
    return Failure(reaction=error.reaction, message=error.message, remedy=error.remedy, at=now, count=before.count + 1 if before else 1)
