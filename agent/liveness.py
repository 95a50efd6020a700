"""Tells a hung task from one that waits: each task promises how soon it goes on, counted in turns of the event loop.

A wait for an upstream, a disk or a slot carries no promise, because a restart of the agent would not end it; its own timeout does.
The count stands still while the process does, so neither a suspended machine nor a changed wall clock makes a task hung.
"""

import asyncio
from contextvars import ContextVar
from math import inf
from types import TracebackType

TICK_SECONDS = 5.0
"""Between two counts of the loop's turning."""
WORK_SECONDS = 60.0
"""In which a task that waits for nothing in particular comes to its next wait."""
HUNG_AFTER_SECONDS = 60.0
"""Past its promise a task is hung. Three probes at 10 s each then end the container."""


class Heartbeat:
    """The seconds for which the event loop has turned."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def tick(self) -> None:
        """Count one tick; one that comes late counts no more than one in time."""
        self.seconds += TICK_SECONDS


class Pulse:
    """The promise of one task."""

    __slots__ = ("_heartbeat", "_promised", "deadline", "task")

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self.task: asyncio.Task[None] | None = None
        self._promised: float | None = None
        self.deadline = inf
        """In the heartbeat's seconds."""

    def promise(self, seconds: float | None) -> float | None:
        """Promise to go on within so many seconds, None for no promise; return what was promised before."""
        before, self._promised = self._promised, seconds
        self.deadline = inf if seconds is None else self._heartbeat.seconds + seconds
        return before

    @property
    def overdue(self) -> float:
        """Seconds past the promise; negative while there is time."""
        return self._heartbeat.seconds - self.deadline


_pulse: ContextVar[Pulse | None] = ContextVar("pulse", default=None)


def begin(pulse: Pulse) -> None:
    """Make it the pulse of the task that calls. Tasks that this one makes inherit it and promise nothing."""
    pulse.task = asyncio.current_task()
    _pulse.set(pulse)


class within:  # noqa: N801  # read as `with within(10)`
    """The task that enters promises to leave in so many seconds; with None, a wait for another's answer, it promises nothing."""

    __slots__ = ("_before", "_pulse", "_seconds")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        pulse = _pulse.get()
        self._pulse = pulse if pulse and pulse.task is asyncio.current_task() else None
        if self._pulse:
            self._before = self._pulse.promise(self._seconds)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pulse:
            self._pulse.promise(self._before)
