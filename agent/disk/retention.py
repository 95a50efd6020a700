"""How long replaced generations live on, so that nobody who has just looked one up finds it gone."""

from datetime import datetime

from structlog.typing import FilteringBoundLogger

from agent.clock import Clock
from agent.disk import atomic

KEPT = 32
"""Replaced generations, at most, however young; the oldest go first."""


class Retention:
    """Remembers when generations were replaced, and removes them in time."""

    def __init__(self, clock: Clock, grace: float, log: FilteringBoundLogger) -> None:
        """`log` knows identity and sink."""
        self.grace = grace
        """Seconds that a replaced generation lives on."""
        self._clock = clock
        self._log = log
        self._replaced: dict[str, datetime] = {}
        self._stuck: set[str] = set()

    def replaced(self, name: str) -> None:
        """This generation has just ceased to be live."""
        self._replaced[name] = self._clock.now()

    def forget(self) -> None:
        """Another directory than before."""
        self._replaced.clear()
        self._stuck.clear()

    def sweep(self, root: int, live: str | None, *, room: int = 0) -> None:
        """Removes what a crash left, and what was replaced longer ago than the grace or is one of too many with `room` more to come.

        What an earlier process replaced, it replaced when the next one was made. What is younger than the live one was
        never published. What cannot be removed (another uid put it there) is left, and said once.
        """
        for name in (atomic.DATA_TEMPORARY, atomic.LINK_TEMPORARY):
            self._remove(root, name)
        now = self._clock.now()
        kept: list[tuple[datetime, str]] = []
        for name, since in self._ages(root, live, now).items():
            if since is None or (now - since).total_seconds() >= self.grace:
                self._remove(root, name)
            else:
                self._replaced[name] = since
                kept.append((since, name))
        for _, name in sorted(kept)[: max(0, len(kept) + room - KEPT)]:
            self._remove(root, name)

    def _ages(self, root: int, live: str | None, now: datetime) -> dict[str, datetime | None]:
        """Since when each generation but the live one is replaced; None for one that never was live."""
        made = atomic.generations(root)
        order = sorted(made, key=lambda name: (made[name], name))
        ages: dict[str, datetime | None] = {}
        for position, name in enumerate(order):
            if name == live:
                continue
            since = self._replaced.get(name)
            if since is None and live in order[position + 1 :]:
                since = datetime.fromtimestamp(made[order[position + 1]] / 1e9, now.tzinfo)
            ages[name] = min(since, now) if since else None  # a clock that ran backwards does not lengthen the grace
        return ages

    def _remove(self, root: int, name: str) -> None:
        try:
            atomic.remove(root, name)
        except OSError as error:
            if name not in self._stuck:
                self._stuck.add(name)
                self._log.warning("leftover.kept", name=name, error=error.strerror)
        else:
            self._replaced.pop(name, None)
            self._stuck.discard(name)
