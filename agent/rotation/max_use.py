"""`refresh.maxUse`: a bound on how long a credential is used that could not be renewed.

The keeper may be waiting for its turn or for a cloud when the bound is reached, so a task of its own watches it.
"""

from datetime import datetime, timedelta

import structlog

from agent.clock import Clock, wait_until
from agent.model import Grant, Key
from agent.record import serving_span
from agent.settings import Duration
from agent.store import Store

log = structlog.get_logger()

LONGEST_WAIT = timedelta(hours=1)
"""Between looks at a record that holds nothing; its news ends the wait sooner."""


def used_up(grant: Grant, max_use: float | None, now: datetime) -> bool:
    """Return whether what is served of a grant has reached the bound, in seconds; False where there is none."""
    ends = _ends(grant, max_use)
    return ends is not None and now >= ends


async def limit_use(key: Key, max_use: float, store: Store, clock: Clock) -> None:
    """Withdraw what the key holds once it is `max_use` seconds old; until the key is dropped."""
    record = store.record(key)
    while record is not None and store.record(key) is record:
        now, news = clock.now(), record.news
        ends = _ends(record.grant, max_use) if record.grant else None
        if ends is None or now < ends:
            await wait_until(clock, ends or now + LONGEST_WAIT, news)
            continue
        bound = Duration(int(max_use))
        record.note = f"its credential was withdrawn at {now:%Y-%m-%dT%H:%M:%SZ}: it was not renewed within refresh.maxUse ({bound})"
        store.end(key)
        log.warning(
            "credential.withdrawn", identity=key.identity, variant=key.variant, reason=f"not renewed within refresh.maxUse ({bound})"
        )


def _ends(grant: Grant, max_use: float | None) -> datetime | None:
    """None where it expires before the bound, or there is none."""
    span = serving_span(grant)
    if max_use is None or span is None or span.lifetime <= max_use:
        return None
    return span.issued_at + timedelta(seconds=max_use)
