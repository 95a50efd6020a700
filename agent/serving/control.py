"""The control socket: what `status`, `renew` and `wait` ask. Mode 0600: its file is the only guard.

GET /status · POST /renew with {"names": [...]} or {"all": true} · GET /wait?timeout=SECONDS
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from aiohttp import web

from agent.clock import Clock
from agent.model import Key
from agent.serving.status import describe
from agent.store import Store
from agent.tasks import TaskFailure

LONGEST = 3600.0
"""Seconds that a request may wait."""
RENEWAL = 60.0
"""Seconds that a renewal may take before the answer says that it goes on."""


class ControlEndpoint:
    """For the person at the same machine."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        refused: Callable[[], Sequence[str]] = tuple,
        failures: Callable[[], Sequence[TaskFailure]] = tuple,
    ) -> None:
        """`refused`: why the configuration file as it is now was refused, a line each; `failures`: of the agent's own tasks."""
        self._store = store
        self._clock = clock
        self._refused = refused
        self._failures = failures

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        match request.method, request.path:
            case "GET", "/status":
                return _json(200, describe(self._store, self._clock, self._refused(), self._failures()))
            case "GET", "/wait":
                return await self._wait(request)
            case "POST", "/renew":
                return await self._renew(request)
            case _:
                return _json(404, {"error": "not found: try GET /status, GET /wait, POST /renew"})

    async def _wait(self, request: web.BaseRequest) -> web.Response:
        try:
            timeout = min(LONGEST, max(0.0, float(request.query.get("timeout", "60"))))
        except ValueError:
            return _json(400, {"error": "timeout is a number of seconds"})
        try:
            async with asyncio.timeout(timeout):
                while not self._store.ready(self._clock.now()):
                    await self._store.change()
        except TimeoutError:
            pass
        return _json(200, describe(self._store, self._clock, self._refused(), self._failures()))

    async def _renew(self, request: web.BaseRequest) -> web.Response:
        try:
            wanted = json.loads(await request.read())
            names = (
                [profile.name for profile in self._store.profiles()]
                if wanted.get("all")
                else list(dict.fromkeys(str(name) for name in wanted["names"]))
            )
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return _json(400, {"error": 'send {"names": [...]} or {"all": true}'})
        if unknown := [name for name in names if self._store.profile(name) is None]:
            return _json(404, {"error": f"there is no identity {', '.join(unknown)}"})
        results = await asyncio.gather(*(self._renew_one(name) for name in names))
        return _json(200, {"renewals": dict(zip(names, results, strict=True))})

    async def _renew_one(self, name: str) -> str:
        """What came of it: `renewed`, `failed`, `too_recent` or `pending`."""
        record = self._store.record(Key(name))
        if record is None:
            return "failed"
        before = record.attempts
        if not self._store.renew(name, self._clock.now()):
            return "too_recent"
        try:
            async with asyncio.timeout(RENEWAL):
                while record.attempts == before:
                    await record.news.wait()
                    if self._store.record(Key(name)) is not record:
                        return "failed"  # it is gone
        except TimeoutError:
            return "pending"
        return "failed" if record.failure else "renewed"


def _json(status: int, body: dict[str, Any]) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body) + b"\n", content_type="application/json")
