"""The agent's tasks: an unexpected exception ends none of the others, and a task that hangs is found.

Bytes of a stranger can raise what no adapter foresaw. The task that read them is started again after a pause, its failure is
logged once, counted and shown in `status`. Only an exception of the composition root ends the process.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, Literal, Never

import structlog

from agent.counters import TaskKind
from agent.errors import Defect, Reaction, frames
from agent.liveness import HUNG_AFTER_SECONDS, TICK_SECONDS, WORK_SECONDS, Heartbeat, Pulse, begin
from agent.model import Key
from agent.schedule import Backoff, retry_delay
from agent.store import Store
from agent.toolbox import Toolbox

log = structlog.get_logger()

Work = Callable[[], Coroutine[Any, Any, None]]

ENDLESS: frozenset[TaskKind] = frozenset({"events", "issuer", "reload", "variants"})
"""Those of the process, one each: to return is a failure, too."""
RESTART = Backoff(initial=1.0, max=60.0)
RECOVERED_SECONDS = 60.0
"""For which a task runs before its earlier failures are over."""
REMEDY = "this is a bug in the agent: please report it with the log"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """What ended a task last, and how often in a row."""

    task: str
    message: str
    at: datetime
    remedy: str = REMEDY
    result: Literal[Reaction.DEFECT] = Reaction.DEFECT
    count: int = 1


class Tasks:
    """Those of one group."""

    def __init__(self, group: asyncio.TaskGroup, store: Store, toolbox: Toolbox) -> None:
        self._group = group
        self._store = store
        self._toolbox = toolbox
        self._heartbeat = Heartbeat()
        self._running: dict[asyncio.Task[None], _Task] = {}
        self._dead: list[str] = []

    def start(
        self, kind: TaskKind, work: Work, key: Key | None = None, *, to: str = "", failed: Exception | None = None
    ) -> asyncio.Task[None]:
        """Run `work` for an identity, or for the process; call it again after it has raised.

        `to`: a sink. `failed`: what a try before this one raised; the next one comes after a pause.
        """
        name = " ".join(filter(None, (kind, *((key.identity, key.variant) if key else ()), to and f"to {to}")))
        watched = _Task(kind, name, key, Pulse(self._heartbeat))
        task = self._group.create_task(self._run(watched, work, failed), name=name)
        self._running[task] = watched
        task.add_done_callback(self._ended)
        return task

    async def watch(self) -> Never:
        """Count the loop's turns, and notice tasks that work again, until cancelled."""
        while True:
            await self._toolbox.clock.sleep(TICK_SECONDS)
            self._heartbeat.tick()
            for one in list(self._running.values()):
                if one.failure and self._heartbeat.seconds - one.began >= RECOVERED_SECONDS:
                    log.info("task.recovered", task=one.name, failures=one.failure.count)
                    one.failure, one.said = None, None

    def unwell(self) -> list[str]:
        """The dead and the hung, a line each. A task that waits to be started again is neither: a restart would not mend it."""
        hung = [(one.name, one.pulse.overdue) for one in self._running.values() if one.pulse.overdue > HUNG_AFTER_SECONDS]
        return [
            *(f"task {name} is dead" for name in self._dead),
            *(f"task {name} is hung, {late:.0f} s past its turn" for name, late in hung),
        ]

    def failures(self) -> list[TaskFailure]:
        """Of tasks that failed and have not run for long since."""
        return [one.failure for one in self._running.values() if one.failure]

    async def _run(self, watched: "_Task", work: Work, failed: Exception | None) -> None:
        begin(watched.pulse)
        if failed:
            await self._toolbox.clock.sleep(self._failed(watched, failed))
        while True:
            watched.pulse.promise(WORK_SECONDS)
            watched.began = self._heartbeat.seconds
            try:
                await work()
                if watched.kind not in ENDLESS:
                    return
                delay = self._failed(watched, None)
            except asyncio.CancelledError as error:
                if watched.pulse.task and watched.pulse.task.cancelling():
                    raise
                delay = self._failed(watched, error)  # not of this task: a library let its own out
            except Exception as error:  # noqa: BLE001  # the net: whatever it is stays with this task
                delay = self._failed(watched, error)
            watched.began = inf
            await self._toolbox.clock.sleep(delay)

    def _failed(self, watched: "_Task", error: BaseException | None) -> float:
        """Log, count and show it; return the seconds until the next start. Its message may hold a secret, and is not kept."""
        now, counters, key = self._toolbox.clock.now(), self._toolbox.counters, watched.key
        kind = type(error).__name__ if error else "an early return"
        where = frames(error) if error else []
        count = watched.failure.count + 1 if watched.failure else 1
        message = f"{key.identity}: {kind} in task {watched.name}" if key else f"{kind} in task {watched.name}"
        watched.failure = TaskFailure(task=watched.name, message=message, at=now, count=count)
        delay = retry_delay(Reaction.UNAVAILABLE, count, RESTART, self._toolbox.random)
        said = (kind, *where)
        about = {"task": watched.name, "error": kind, "frames": where, "failures": count, "next_try_in": round(delay, 1), "remedy": REMEDY}
        if watched.said == said:
            log.debug("task.failed", **about)
        else:
            log.error("task.failed", **about)
        watched.said = said
        counters.task_failures[watched.kind] += 1
        if key and self._store.record(key):
            counters.refreshes[key.identity, Reaction.DEFECT] += 1
            self._store.attempted(key, Defect(message, remedy=REMEDY), now)
        return delay

    def _ended(self, task: asyncio.Task[None]) -> None:
        watched = self._running.pop(task)
        if watched.kind in ENDLESS:
            self._dead.append(watched.name)


@dataclass(slots=True)
class _Task:
    kind: TaskKind
    name: str
    key: Key | None
    pulse: Pulse
    failure: TaskFailure | None = None
    said: tuple[str, ...] | None = None
    """Kind and place of what was logged last."""
    began: float = inf
    """In the heartbeat's seconds; never while it waits to be started again."""
