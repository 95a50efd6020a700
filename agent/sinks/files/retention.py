"""How long replaced generations live on, so that a reader that has just looked one up does not find it gone."""

import os
from datetime import UTC, datetime

from structlog.typing import FilteringBoundLogger

from agent.clock import Clock
from agent.sinks.files import atomic_writer, removal
from agent.sinks.files.limits import EXHAUSTED, MAX_ENTRIES_LOOKED_AT

KEPT = 32
"""Replaced generations, at most, however young; the oldest go first."""
TOLD_AGAIN = 10
"""Times as many entries that cannot be removed are worth another line in the log."""


class Retention:
    """Remembers when generations were replaced, and removes them in time."""

    def __init__(self, clock: Clock, grace: float, log: FilteringBoundLogger) -> None:
        """`log` knows identity and sink."""
        self.grace = grace
        """Seconds that a replaced generation lives on."""
        self._clock = clock
        self._log = log
        self._replaced: dict[str, datetime] = {}
        self._searched = False
        """Whether all of the directory was searched for what an earlier process left."""
        self._told = 0
        """Entries that could not be removed, as last logged."""

    def replaced(self, name: str) -> None:
        """This generation has just ceased to be live."""
        self._replaced[name] = self._clock.now()

    def forget(self) -> None:
        """Another directory than before."""
        self._replaced.clear()
        self._searched, self._told = False, 0

    def sweep(self, root: int, live: str | None, *, room: int = 0) -> None:
        """Removes what a crash left, and what was replaced longer ago than the grace or is one of too many with `room` more to come.

        An earlier process replaced a generation when it made the next one. A generation younger than the live one was
        never published. Entries of another user that the agent cannot remove stay, and the log counts them. After
        the first sweep of a directory it looks at MAX_ENTRIES_LOOKED_AT entries and at the generations it knows. Raises
        OSError where the agent has no descriptors or memory left.
        """
        own, strangers = self._find(root, live)
        now, ages = self._clock.now(), self._ages(own, live)
        kept = sorted((since, name) for name, since in ages.items() if since and (now - min(since, now)).total_seconds() < self.grace)
        kept = kept[max(0, len(kept) + room - KEPT) :]
        self._replaced = {name: min(since, now) for since, name in kept}  # a clock that ran backwards does not lengthen the grace
        spent = [name for name in own if name != live and name not in self._replaced]
        self._remove(root, [*spent, *strangers])

    def _find(self, root: int, live: str | None) -> tuple[dict[str, int], list[str]]:
        """The agent's own generations and temporary entries, and the live one, with their mtimes in nanoseconds; and others' names."""
        own: dict[str, int] = {}
        strangers: list[str] = []
        for name, seen in atomic_writer.machinery(root, most=MAX_ENTRIES_LOOKED_AT if self._searched else None):
            if seen.st_uid == os.geteuid() or name == live:
                own[name] = seen.st_mtime_ns
            elif len(strangers) < MAX_ENTRIES_LOOKED_AT:
                strangers.append(name)
        for name in {*self._replaced, *([live] if live else [])} - own.keys():
            try:
                own[name] = os.stat(name, dir_fd=root, follow_symlinks=False).st_mtime_ns
            except FileNotFoundError:
                continue
        self._searched = True
        return own, strangers

    def _ages(self, made: dict[str, int], live: str | None) -> dict[str, datetime | None]:
        """Since when each generation but the live one is replaced; None for one that never was live."""
        ages: dict[str, datetime | None] = {}
        successor: int | None = None
        published = False
        for name in sorted(
            (name for name in made if atomic_writer.GENERATION.fullmatch(name)), key=lambda name: (made[name], name), reverse=True
        ):
            if name == live:
                published = True
            else:
                since = self._replaced.get(name)
                ages[name] = _moment(successor) if since is None and successor is not None and published else since
            successor = made[name]
        return ages

    def _remove(self, root: int, names: list[str]) -> None:
        stuck, example, reason = 0, "", None
        left = removal.allowance()
        for name in names:
            try:
                removal.remove(root, name, left)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    raise
                stuck, example, reason = stuck + 1, name, error.strerror
        if stuck and stuck >= self._told * TOLD_AGAIN:
            self._log.warning("leftover.kept", count=stuck, name=example, error=reason)
            self._told = stuck
        elif not stuck:
            self._told = 0


def _moment(nanoseconds: int) -> datetime:
    """When a generation was made; the live one may be another user's, with any time at all."""
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    except (OverflowError, ValueError):
        return datetime.min.replace(tzinfo=UTC)
