"""The rate at which changes of one ServiceAccount are carried out, so that annotations cannot cause token requests without end."""

from datetime import datetime, timedelta

from agent.schedule import backoff_seconds
from agent.serviceaccounts.wanted import Bound, Unbound

FREE_CHANGES = 10
"""Carried out at once; each further one after a rest of 1, 2, 4 … `LONGEST_REST_SECONDS`."""
LONGEST_REST_SECONDS = 60.0
QUIET_SECONDS = 60.0
"""Without a change, after which changes are free again."""


class Pace:
    """Of one ServiceAccount. The agent withdraws at once all the same: only the next principal has to wait."""

    def __init__(self) -> None:
        self._outcome: object = None
        self._changes = 0
        self._last: datetime | None = None
        """When a change was carried out last, or will be."""
        self._rested = False

    def rest(self, wanted: Bound | Unbound, now: datetime) -> float:
        """Return the seconds until what is wanted may be carried out; 0: at once, as is the first after a rest."""
        if _outcome(wanted) == self._outcome:
            return 0.0
        if self._rested:
            self._rested, self._outcome = False, _outcome(wanted)
            return 0.0
        if self._last is None or not (now - self._last).total_seconds() < QUIET_SECONDS:
            self._changes = 0
        self._changes += 1
        over = self._changes - FREE_CHANGES
        rest = backoff_seconds(over, first=1.0, longest=LONGEST_REST_SECONDS) if over > 0 else 0.0
        self._last = now + timedelta(seconds=rest)
        self._rested, self._outcome = rest > 0, None if rest else _outcome(wanted)
        return rest


def _outcome(wanted: Bound | Unbound) -> object:
    return wanted if isinstance(wanted, Bound) else wanted.error.message
