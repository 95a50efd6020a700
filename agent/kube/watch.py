"""A list, and then what changes in it: for ever, over cuts, outages, and a resourceVersion that has grown too old.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from agent.clock import Clock
from agent.errors import RefreshError, Unavailable
from agent.kube.client import LIMIT, Kube, text_at
from agent.kube.line import broken
from agent.kube.refusals import EXPIRED, Question, RefusedError, from_status
from agent.parsing import json_object

if TYPE_CHECKING:
    import aiohttp

ROUND = 300
"""Seconds after which the API server ends a watch that it was asked for: client-go asks for 5 to 10 min."""
SILENCE = 90.0
"""Seconds without a byte after which a watch is taken for dead: bookmarks come once a minute (KEP-956)."""
FIRST_PAUSE = 1.0
"""Seconds, about, before the second try; doubled for each further one."""
LONGEST_PAUSE = 60.0
RETRY_AFTER_CAP = 600.0
"""Seconds: nobody is left alone for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a watch has to say."""

    kind: Literal["listed", "added", "modified", "deleted", "failed", "resumed"]
    """`resumed`: after `failed` the watch goes on where it was; nothing was missed."""
    objects: tuple[dict[str, Any], ...] = ()
    """All that there are, if `listed`: what was known before and is not among them is gone. Else the one it is about."""
    error: RefreshError | None = None
    """If `failed`: why nothing can be said at the moment. The watch goes on by itself."""


class Watch:
    """Over the objects of one path, such as `/api/v1/namespaces/demo/serviceaccounts`.

    `async for event in watch.events()`. It begins with `listed`, or `failed`; a `listed` also follows whenever events may
    have been missed. Unavailable and Rejected are both tried again, the second slowly.
    """

    def __init__(
        self, kube: Kube, path: str, question: Question, *, clock: Clock, random: Random, whose: str, query: Iterable[tuple[str, str]] = ()
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
        self._failed = False
        """Whether the last event said so."""
        self._began: datetime | None = None
        """When the watch was opened; None where none is."""

    async def events(self) -> AsyncIterator[Event]:
        """For ever."""
        while True:
            failure: RefreshError | None = None
            try:
                if not self._version:
                    listed = await self._list()
                    self._failed = False
                    yield listed
                async for event in self._follow():
                    yield event
                self._credit()
                self._failures += 1  # no failure, unless it happens again and again
            except RefusedError as error:
                self._credit()
                if error.status == EXPIRED:
                    self._version = ""
                    self._failures += 1
                else:
                    failure = await self._kube.failure(error, self._question, whose=self._whose)
            except RefreshError as error:
                self._credit()
                error.message = f"{self._whose}: {error.message}"
                failure = error
            if failure:
                self._failures += 1
                self._failed = True
                yield Event(kind="failed", error=failure)
            if self._failures > (0 if failure else 1):  # the first of what is no failure is followed up at once
                await self._clock.sleep(self._pause(failure))

    def _credit(self) -> None:
        """A watch that held for a while makes up for what failed before it; one that ends at once is no watch."""
        began, self._began = self._began, None
        if began and (self._clock.now() - began).total_seconds() >= FIRST_PAUSE:
            self._failures = 0

    async def _list(self) -> Event:
        found = await self._kube.send("GET", self._path, query=self._query)
        items = found.get("items")
        self._version = text_at(found, "metadata", "resourceVersion")
        return Event(kind="listed", objects=tuple(item for item in items if isinstance(item, dict)) if isinstance(items, list) else ())

    async def _follow(self) -> AsyncIterator[Event]:
        """Until the connection ends. Raises RefusedError, also for what comes as an event, Unavailable or Rejected."""
        query = [
            *self._query,
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(ROUND + self._random.randrange(60))),
        ]
        async with self._kube.opened("GET", self._path, query=query, silence=SILENCE) as response:
            if self._failed:
                self._failed = False
                yield Event(kind="resumed")
            self._began = self._clock.now()
            async for line in _lines(response, self._kube.host):
                found = json_object(line, longest=LIMIT) or {}
                body = found.get("object")
                if not isinstance(body, dict):
                    raise Unavailable(f"{self._kube.host} sent something that is no event of a watch")
                kind = str(found.get("type")).lower()
                if kind == "error":
                    raise from_status(body)
                self._version = text_at(body, "metadata", "resourceVersion") or self._version
                self._failures = 0
                match kind:
                    case "added" | "modified" | "deleted":
                        yield Event(kind=kind, objects=(body,))
                    case _:
                        pass  # a bookmark: only its resourceVersion

    def _pause(self, failure: RefreshError | None) -> float:
        """Exponential with half of it jitter; at the slow end for what a person has to change."""
        slow = failure is not None and failure.reaction == "rejected"
        pause = LONGEST_PAUSE if slow else min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures - 1, 16))
        asked = failure.retry_after if isinstance(failure, Unavailable) and failure.retry_after else 0.0
        return max(pause * (0.5 + 0.5 * self._random.random()), min(asked, RETRY_AFTER_CAP))


async def _lines(response: "aiohttp.ClientResponse", host: str) -> AsyncIterator[bytes]:
    import aiohttp  # noqa: PLC0415  # 27 MiB; there already, or nobody would have answered

    rest = bytearray()
    failure: RefreshError | None = None
    try:
        async for chunk in response.content.iter_any():
            rest += chunk
            while (end := rest.find(b"\n")) >= 0:
                line = bytes(rest[:end])
                del rest[: end + 1]
                if line.strip():
                    yield line
            if len(rest) > LIMIT:
                raise Unavailable(f"{host} sent an event longer than an object can be")
    except TimeoutError:
        return  # silent for too long: a new watch goes on from the last resourceVersion
    except (aiohttp.ClientError, OSError) as error:
        failure = broken(error, host)
    if failure:
        raise failure  # outside, so that it carries no context to be printed
