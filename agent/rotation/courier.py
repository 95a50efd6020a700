"""Delivery of one identity's newest grant to one sink, checked every 10 s.

The courier reads the sink back, so `status` and `/readyz` report what a workload reads.
"""

import asyncio
from datetime import datetime, timedelta
from random import Random

import structlog

from agent.clock import Clock, wait_until
from agent.counters import Counters
from agent.errors import Defect, NotReady, RefreshError, Unavailable, frames
from agent.model import Delivery, Grant, Key, Sink
from agent.record import SinkStatus
from agent.schedule import Backoff, retry_delay
from agent.store import Store

log = structlog.get_logger()

CHECK_INTERVAL_SECONDS = 10.0
"""Between two read-backs."""
SINK_TIMEOUT_SECONDS = 10.0
"""For one call of a sink, which waits for a disk or an API server."""
BACKOFF = Backoff(initial=1.0, max=10.0)
"""Disks and the own cluster are near, so the courier retries often."""


class Courier:
    """One for each identity and sink."""

    def __init__(self, identity: str, sink: Sink, *, store: Store, clock: Clock, random: Random, counters: Counters) -> None:
        self._key = Key(identity)
        self._sink = sink
        self._store = store
        self._clock = clock
        self._random = random
        self._counters = counters
        self._log = log.bind(identity=identity, sink=sink.name)
        record = store.record(self._key)
        self._endings = record.endings if record else 0
        """The number of endings for which the courier has emptied the sink."""

    async def carry(self) -> None:
        """Deliver until the identity is removed."""
        looked_at = look_at = self._clock.now()
        while (record := self._store.record(self._key)) is not None:
            sink_status = record.sink_statuses.get(self._sink.name)
            news = record.news
            now = self._clock.now()
            if record.endings != self._endings or (record.ended and (sink_status is None or sink_status.delivery or sink_status.failure)):
                await self._withdraw(sink_status, record.endings)
                continue
            if record.grant is None or not self._current(record.grant):
                await wait_until(self._clock, now + timedelta(hours=1), news)
                continue
            if sink_status and sink_status.generation >= record.grant.generation and looked_at <= now < look_at:
                await wait_until(self._clock, look_at, news, began=looked_at)
                continue
            error = await self._visit(record.grant, sink_status)
            looked_at = self._clock.now()
            look_at = looked_at + timedelta(seconds=self._delay(error) if error else CHECK_INTERVAL_SECONDS)
            if error:
                await self._rest(looked_at, look_at, record.grant.generation)

    async def _withdraw(self, sink_status: SinkStatus | None, endings: int) -> None:
        """Withdraw the delivery, or an earlier process's, and retry until the sink is empty."""
        error: RefreshError | None = None
        began = self._clock.now()
        try:
            async with asyncio.timeout(SINK_TIMEOUT_SECONDS):
                await self._sink.withdraw()
        except TimeoutError:
            error = Unavailable(
                f"{self._key.identity}: {self._sink.name} has not answered for {SINK_TIMEOUT_SECONDS:g} s", remedy="look at the volume"
            )
        except RefreshError as caught:
            error = caught
        except Exception as caught:  # noqa: BLE001  # as in _visit
            error = Defect(
                f"{self._key.identity}: {type(caught).__name__} in sink {self._sink.name}",
                remedy="this is a bug in the agent: please report it with the log",
            )
            self._log.error("delivery.defect", error=type(caught).__name__, frames=frames(caught))  # the message may hold a secret
        now = self._clock.now()
        found = sink_status.delivery if sink_status and error else None
        self._store.sink_checked(self._key, self._sink.name, now, generation=0, delivery=found, error=error)
        if error is None:
            self._endings = endings
            self._log.info("delivery.withdrawn")
            return
        if not (sink_status and sink_status.failure and sink_status.failure.message == error.message):
            self._log.error("delivery.not_withdrawn", result=error.reaction, error=error.message, remedy=error.remedy)
        record = self._store.record(self._key)
        generation = record.grant.generation if record and record.grant else 0
        await self._rest(began, now + timedelta(seconds=self._delay(error)), generation)

    def _current(self, grant: Grant) -> bool:
        """Return whether it was granted under the settings that the sink was made for.

        A grant of earlier settings is not written: after a restart it would be taken for one of these settings.
        """
        profile = self._store.profile(self._key.identity)
        return profile is not None and profile.digest == grant.digest

    async def _visit(self, grant: Grant, sink_status: SinkStatus | None) -> RefreshError | None:
        """Deliver a newer grant, or check the delivered one."""
        found: Delivery | None = sink_status.delivery if sink_status else None
        carried = sink_status.generation if sink_status else 0
        error: RefreshError | None = None
        wrote = lost = False
        try:
            async with asyncio.timeout(SINK_TIMEOUT_SECONDS):
                if carried >= grant.generation:
                    found = await self._sink.read()
                    if lost := not _is(found, grant):
                        self._log.warning("delivery.lost", generation=carried)
                if carried < grant.generation or not _is(found, grant):
                    wrote = True
                    await self._sink.write(grant)
                    carried, found = grant.generation, await self._sink.read()
                    self._confirm(found, grant)
        except TimeoutError:
            error = Unavailable(
                f"{self._key.identity}: {self._sink.name} has not answered for {SINK_TIMEOUT_SECONDS:g} s", remedy="look at the volume"
            )
        except RefreshError as caught:
            error = caught
        except Exception as caught:  # noqa: BLE001  # the other of the two places where a bug is kept to its identity
            error = Defect(
                f"{self._key.identity}: {type(caught).__name__} in sink {self._sink.name}",
                remedy="this is a bug in the agent: please report it with the log",
            )
            self._log.error("delivery.defect", error=type(caught).__name__, frames=frames(caught))  # the message may hold a secret
        if error:
            carried = min(carried, grant.generation - 1) if wrote else carried
            found = await self._look(found)
        if wrote:
            self._counters.writes[self._sink.name, error.reaction if error else "success"] += 1
        self._say(sink_status, error, wrote, grant)
        self._store.sink_checked(self._key, self._sink.name, self._clock.now(), generation=carried, delivery=found, error=error, lost=lost)
        return error

    def _confirm(self, found: Delivery | None, grant: Grant) -> None:
        if not _is(found, grant):
            raise Unavailable(
                f"{self._key.identity}: {self._sink.name} does not hold what was just written",
                remedy="stop the other process that writes there",
            )

    async def _look(self, before: Delivery | None) -> Delivery | None:
        """Return what a workload finds there after a failure; if the sink does not answer, what was known before."""
        try:
            async with asyncio.timeout(SINK_TIMEOUT_SECONDS):
                return await self._sink.read()
        except (NotReady, Unavailable, TimeoutError):
            return before
        except Exception:  # noqa: BLE001  # said already, by the failure itself
            return None

    async def _rest(self, began: datetime, until: datetime, generation: int) -> None:
        """Wait for the next attempt or a newer grant; a clock that was set back ends the wait too."""
        record = self._store.record(self._key)
        ended = record is not None and record.ended
        while (record := self._store.record(self._key)) and began <= self._clock.now() < until:
            if record.ended != ended or (record.grant and record.grant.generation > generation):
                return
            await wait_until(self._clock, until, record.news, began=began)

    def _delay(self, error: RefreshError) -> float:
        record = self._store.record(self._key)
        sink_status = record.sink_statuses.get(self._sink.name) if record else None
        count = sink_status.failure.count if sink_status and sink_status.failure else 1
        return retry_delay(error.reaction, count, BACKOFF, self._random, retry_after=error.retry_after)

    def _say(self, sink_status: SinkStatus | None, error: RefreshError | None, wrote: bool, grant: Grant) -> None:  # noqa: FBT001
        before = sink_status.failure if sink_status else None
        if error is None:
            until = f"{grant.until:%Y-%m-%dT%H:%M:%SZ}" if grant.until else ""
            if before:
                self._log.info("delivery.recovered", failures=before.count, generation=grant.generation, until=until)
            elif wrote:
                self._log.info("grant.delivered", generation=grant.generation, until=until)
        elif before is None or (before.reaction, before.message) != (error.reaction, error.message):
            self._log.error("delivery.failed", result=error.reaction, error=error.message, remedy=error.remedy)


def _is(found: Delivery | None, grant: Grant) -> bool:
    """Return whether the delivery is of this grant, by its times: after a restart the sink does not know the number."""
    if found is None or found.generation not in {0, grant.generation}:
        return False
    token = grant.token and grant.token.expires_at
    return (found.token_expires_at, found.credential_expires_at) == (token, grant.credential.expires_at)
