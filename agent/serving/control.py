"""The control socket, for the commands `status`, `renew`, `revoke` and `wait`. Its file mode 0600 is the only guard.

GET /status · POST /renew with {"names": [...]} or {"all": true} · POST /revoke with {"names": [...]} · GET /wait?timeout=SECONDS
"""

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from aiohttp import web

from agent.clock import Clock
from agent.model import Key
from agent.record import Revocation
from agent.serving.status import describe
from agent.store import Store
from agent.tasks import TaskFailure

MAX_WAIT_SECONDS = 3600.0
"""Of one GET /wait."""
RENEWAL_TIMEOUT_SECONDS = 60.0
"""After it the answer reports a renewal as pending."""


class Operator(Protocol):
    """Carries out what ends an identity, and what lets it run again."""

    @property
    def revoked(self) -> Mapping[str, Revocation]:
        """Those that were revoked."""

    async def revoke(self, name: str, by: str) -> bool:
        """Withdraw an identity; return whether a restart will know of it. Raises KeyError if there is none."""

    async def reinstate(self, name: str) -> bool:
        """Let a revoked identity run again; False if it was not revoked."""


class ControlEndpoint:
    """Answers the operator on the same machine."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        refused: Callable[[], Sequence[str]] = tuple,
        failures: Callable[[], Sequence[TaskFailure]] = tuple,
        operator: Operator | None = None,
        *,
        restart_needed: Callable[[], bool] = bool,
    ) -> None:
        """`refused`: why the configuration file as it is now was refused, a line each; `failures`: of the agent's own tasks."""
        self._store = store
        self._clock = clock
        self._refused = refused
        self._failures = failures
        self._operator = operator
        self._restart_needed = restart_needed

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        match request.method, request.path:
            case "GET", "/status":
                return _json(200, self._describe())
            case "GET", "/wait":
                return await self._wait(request)
            case "POST", "/renew":
                return await self._renew(request)
            case "POST", "/revoke":
                return await self._revoke(request)
            case _:
                return _json(404, {"error": "not found: try GET /status, GET /wait, POST /renew, POST /revoke"})

    def _describe(self) -> dict[str, Any]:
        revoked = self._operator.revoked if self._operator else {}
        return describe(self._store, self._clock, self._refused(), self._failures(), revoked, restart_needed=self._restart_needed())

    async def _wait(self, request: web.BaseRequest) -> web.Response:
        try:
            timeout = min(MAX_WAIT_SECONDS, max(0.0, float(request.query.get("timeout", "60"))))
        except ValueError:
            return _json(400, {"error": "timeout is a number of seconds"})
        try:
            async with asyncio.timeout(timeout):
                while not self._store.ready(self._clock.now()):
                    await self._store.change()
        except TimeoutError:
            pass
        return _json(200, self._describe())

    async def _renew(self, request: web.BaseRequest) -> web.Response:
        try:
            wanted = json.loads(await request.read())
            every = bool(wanted.get("all"))
            named = [profile.name for profile in self._store.profiles()] if every else [str(name) for name in wanted["names"]]
            names = list(dict.fromkeys(named))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return _json(400, {"error": 'send {"names": [...]} or {"all": true}'})
        if unknown := [name for name in names if self._store.profile(name) is None]:
            return _json(404, {"error": f"there is no identity {', '.join(unknown)}"})
        results = await asyncio.gather(*(self._renew_one(name, by_name=not every) for name in names))
        return _json(200, {"renewals": dict(zip(names, results, strict=True))})

    async def _revoke(self, request: web.BaseRequest) -> web.Response:
        try:
            names = list(dict.fromkeys(str(name) for name in json.loads(await request.read())["names"]))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return _json(400, {"error": 'send {"names": [...]}'})
        if unknown := [name for name in names if self._operator is None or self._store.profile(name) is None]:
            return _json(404, {"error": f"there is no identity {', '.join(unknown)}"})
        results = await asyncio.gather(*(self._revoke_one(name, _peer(request)) for name in names))
        return _json(200, {"revocations": dict(zip(names, results, strict=True))})

    async def _revoke_one(self, name: str, by: str) -> str:
        """Return the result: `revoked`, `forgotten_at_restart` or `failed`."""
        try:
            return "revoked" if self._operator and await self._operator.revoke(name, by) else "forgotten_at_restart"
        except KeyError:
            return "failed"  # a reload removed it meanwhile

    async def _renew_one(self, name: str, *, by_name: bool = True) -> str:
        """Return the result: `renewed`, `failed`, `too_recent`, `pending` or `revoked`. A revoked identity runs again only if named."""
        if self._operator and name in self._operator.revoked:
            if not by_name:
                return "revoked"
            await self._operator.reinstate(name)
            return await self._first(name)
        record = self._store.record(Key(name))
        if record is None:
            return "failed"
        before = record.attempts
        if not self._store.renew(name, self._clock.now()):
            return "too_recent"
        try:
            async with asyncio.timeout(RENEWAL_TIMEOUT_SECONDS):
                while record.attempts == before:
                    await record.news.wait()
                    if self._store.record(Key(name)) is not record:
                        return "failed"  # the identity was removed
        except TimeoutError:
            return "pending"
        return "failed" if record.failure else "renewed"

    async def _first(self, name: str) -> str:
        """Return the result of a new identity's first attempt."""
        try:
            async with asyncio.timeout(RENEWAL_TIMEOUT_SECONDS):
                while record := self._store.record(Key(name)):
                    if record.grant or record.failure:
                        return "renewed" if record.grant else "failed"
                    await record.news.wait()
        except TimeoutError:
            return "pending"
        return "failed"


def _peer(request: web.BaseRequest) -> str:
    """Return the user at the other end of the socket, from the kernel."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    if connection is None or connection.family != socket.AF_UNIX:
        return "an unknown user"
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return f"uid {uid}"


def _json(status: int, body: dict[str, Any]) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body) + b"\n", content_type="application/json")
