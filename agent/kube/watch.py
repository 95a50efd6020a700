"""A list and its changes: for ever, over cuts, outages, and a resourceVersion that the API server has forgotten.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import structlog

from agent.clock import Clock
from agent.errors import Defect, Reaction, RefreshError, Unavailable, frames, without_context
from agent.kube.client import Kube
from agent.kube.connection import Unanswered, broken
from agent.kube.credential_files import LOOK_SECONDS
from agent.kube.errors import EXPIRED, SETTLING, ApiError, Attempt, from_status
from agent.kube.objects import LONGEST_BYTES, changed, listed
from agent.schedule import backoff_seconds

if TYPE_CHECKING:
    import aiohttp

log = structlog.get_logger()

ROUND = 300
"""Seconds after which the API server ends a watch that it was asked for: client-go asks for 5 to 10 min."""
SILENCE = 390.0
"""Seconds without a byte after which a watch is taken for dead: the API server ends each sooner. A quiet one may be without a
bookmark for all of its time; that the server's machine is gone shows in TCP's own probes (`connection.STREAM`)."""
FIRST_PAUSE_SECONDS = 1.0
"""About, before the second try; doubled for each further one."""
LONGEST_PAUSE_SECONDS = 60.0
MAX_RETRY_AFTER_SECONDS = 600.0
"""Of a Retry-After that the watch obeys."""
COST_OF_LINE_BYTES = 2048
"""What a line of a stream counts for beside its length, for the work that it makes."""
COST_OF_BLANK_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One report of a watch."""

    kind: Literal["listed", "added", "modified", "deleted", "failed", "resumed"]
    """`resumed`: after `failed` the watch goes on where it was; nothing was missed."""
    objects: tuple[dict[str, Any], ...] = ()
    """All that there are, if `listed`: what was known before and is not among them is gone. Else the one it is about."""
    error: RefreshError | None = None
    """If `failed`: why nothing can be said at the moment. The watch goes on by itself."""


class Watch:
    """Over the objects of one path, such as `/api/v1/namespaces/demo/serviceaccounts`.

    `async for event in watch.events()`. It begins with `listed`, or `failed`; a `listed` also follows whenever events may
    have been missed. Unavailable and Rejected are both retried, the second slowly.
    """

    def __init__(
        self, kube: Kube, path: str, question: Attempt, *, clock: Clock, random: Random, whose: str, query: Iterable[tuple[str, str]] = ()
    ) -> None:
        """`question` names what is watched, for messages; `query` may hold a `fieldSelector` or `labelSelector`."""
        self._kube = kube
        self._path = path
        self._question = question
        self._clock = clock
        self._random = random
        self._whose = whose
        self._query = list(query)
        self._version = ""
        """The newest resourceVersion seen; empty where a list is due."""
        self._failures = 0
        """In a row, without an event or a watch that held in between."""
        self._ends = 0
        """Watches in a row that the server ended, or called too old, as soon as they were open."""
        self._failed = False
        """Whether the last event said so."""
        self._began: datetime | None = None
        """When the watch was opened; None where none is."""
        self._defect = ""
        """The last one that the log has."""

    def restart(self) -> None:
        """Have the next `events` begin with a list."""
        self._version = ""

    async def events(self) -> AsyncGenerator[Event, None]:
        """For ever. No exception but those of cancellation ends it."""
        while True:
            failure: RefreshError | None = None
            status = version = 0
            try:
                if not self._version:
                    listed = await self._list()
                    self._failed = False
                    yield listed
                async with aclosing(self._follow()) as changes:
                    async for event in changes:
                        yield event
                self._credit()
                self._ends += 1
            except Exception as error:  # noqa: BLE001  # whatever an API server sends, it ends no watch
                self._credit()
                version = self._kube.credentials.version
                failure, status = await self._sorted(error)
            if failure is None:
                if self._ends > 1:  # the first is followed up at once
                    await self._clock.sleep(self._jittered(self._ends))
                continue
            self._failed = True
            yield Event(kind="failed", error=failure)
            if isinstance(failure, Unanswered):
                await self._kube.outage.wait(self._random)
                continue
            self._failures += 1
            await self._rest(self._pause(failure, status), None if _asks_for_rest(failure, status) else version)

    async def _sorted(self, error: Exception) -> tuple[RefreshError | None, int]:
        """The failure to tell of, if it is one, and the status that it came with."""
        try:
            if isinstance(error, ApiError) and error.status == EXPIRED:
                self._version = ""
                self._ends += 1
                return None, error.status
            if isinstance(error, ApiError):
                return await self._kube.failure(error, self._question, whose=self._whose), error.status
            if isinstance(error, RefreshError):
                error.message = f"{self._whose}: {error.message}"
                return error, 0
        except Exception as another:  # noqa: BLE001  # in the words of a refusal
            return self._bug(another), 0
        return self._bug(error), 0

    def _bug(self, error: Exception) -> RefreshError:
        """What to say of an exception that nothing foresaw; begins with a list again. Its message may hold a secret."""
        self._version = ""
        place = frames(error)
        if self._defect != (said := f"{type(error).__name__} {place[-1:]}"):
            self._defect = said
            log.error("watch.defect", identity=self._whose, error=type(error).__name__, frames=place)
        return Defect(
            f"{self._whose}: {type(error).__name__} in the watch of {self._question.resource}",
            remedy="this is a bug in the agent: please report it with the log",
        )

    def _credit(self) -> None:
        """Reset the failures after a watch that lasted a while; one that ends at once does not count."""
        began, self._began = self._began, None
        if began and (self._clock.now() - began).total_seconds() >= FIRST_PAUSE_SECONDS:
            self._failures = self._ends = 0

    async def _list(self) -> Event:
        await self._kube.lists.spend()
        found = listed(await self._kube.body("GET", self._path, query=self._query, longest=LONGEST_BYTES))
        if found is None:
            raise Unavailable(f"{self._kube.host} sent a body that is not a list of {self._question.resource}")
        self._version, objects = found
        return Event(kind="listed", objects=objects)

    async def _follow(self) -> AsyncGenerator[Event, None]:
        """Until the connection ends. Raises RefusedError, also for what comes as an event, Unavailable or Rejected."""
        query = [
            *self._query,
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(ROUND + self._random.randrange(60))),
        ]
        await self._kube.watches.spend()
        async with self._kube.opened("GET", self._path, query=query, silence=SILENCE) as response:
            if self._failed:
                self._failed = False
                yield Event(kind="resumed")
            self._began = self._clock.now()
            async with aclosing(_lines(response, self._kube)) as lines:
                async for line in lines:
                    found = changed(line)
                    if found is None:
                        raise Unavailable(f"{self._kube.host} sent a line that is not a watch event")
                    kind, body = found
                    if kind == "error":
                        raise from_status(body)
                    self._version = body.get("metadata", {}).get("resourceVersion") or self._version
                    self._failures = 0
                    match kind:
                        case "added" | "modified" | "deleted":
                            yield Event(kind=kind, objects=(body,))
                        case _:
                            pass  # a bookmark: only its resourceVersion

    def _pause(self, failure: RefreshError, status: int) -> float:
        """Exponential with half of it jitter; at the slow end for what a person has to change, but for what may settle by itself."""
        slow = failure.reaction is Reaction.REJECTED and status not in SETTLING
        pause = self._jittered(16 if slow else self._failures)
        asked = failure.retry_after or 0.0
        return max(pause, min(asked, MAX_RETRY_AFTER_SECONDS))

    def _jittered(self, times: int) -> float:
        return backoff_seconds(times, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS) * (0.5 + 0.5 * self._random.random())

    async def _rest(self, pause: float, version: int | None) -> None:
        """Sleep so long; where a version is given, only until the files of the agent's credentials are others than at that version."""
        while version is not None and pause > LOOK_SECONDS:
            await self._clock.sleep(LOOK_SECONDS)
            if await self._kube.credentials.changed(version):
                return
            pause -= LOOK_SECONDS
        await self._clock.sleep(pause)


def _asks_for_rest(failure: RefreshError, status: int) -> bool:
    """Whether the API server may have asked to be left alone, so that other credentials do not help."""
    return isinstance(failure, Unavailable) and status != 401


async def _lines(response: "aiohttp.ClientResponse", kube: Kube) -> AsyncGenerator[bytes, None]:
    """The lines that are not blank, as fast as the API server's allowance lets them be read."""
    import aiohttp  # noqa: PLC0415  # 27 MiB; loaded already, by the request

    rest = bytearray()
    with without_context():
        try:
            async for chunk in response.content.iter_any():
                whole: list[bytes] = []
                blank = chunk.count(b"\n")
                if rest or chunk.strip():
                    rest += chunk
                if rest and blank:
                    *whole, last = bytes(rest).split(b"\n")
                    rest = bytearray(last)
                lines = [line for line in whole if line.strip()]
                blank -= len(lines)
                await kube.stream.spend(len(chunk) + COST_OF_BLANK_BYTES * blank + COST_OF_LINE_BYTES * len(lines))
                for line in lines:
                    yield line
                    await asyncio.sleep(0)  # a chunk may hold thousands, and others have a turn between
                if len(rest) > LONGEST_BYTES:
                    raise Unavailable(f"{kube.host} sent an event longer than an object can be")
        except TimeoutError:
            return  # silent for too long: a new watch goes on from the last resourceVersion
        except (aiohttp.ClientError, OSError) as error:
            raise broken(error, kube.host) from None
