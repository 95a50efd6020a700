"""The admin listener: GET /metrics, /healthz, /readyz and /readyz/NAME, and nothing else."""

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

from agent.clock import Clock
from agent.serving.capacity import most
from agent.store import Store


class AdminEndpoint:
    """Answers Prometheus and kubelet's probes. Depends on no cloud."""

    def __init__(
        self, store: Store, clock: Clock, scrape: Callable[[str], tuple[bytes, str]], unwell: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """`unwell`: the tasks that are dead or hung, a line each."""
        self._store = store
        self._clock = clock
        self._expose = scrape
        self._unwell = unwell
        self._turn = asyncio.Lock()
        """A scrape blocks every other answer for milliseconds; the lock lets SDKs and probes in between two scrapes, however many wait."""
        self._scrapes = 0
        """Running or waiting. Their connections are never closed for new ones, so the limit leaves most connections to probes and SDKs."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, text="method not allowed\n", headers={"Allow": "GET, HEAD"})
        path = request.path
        if path == "/metrics":
            return await self._scrape(request.headers.get("Accept", ""))
        if path == "/healthz":
            return self._healthy()
        if path == "/readyz":
            return self._ready(None)
        if path.startswith("/readyz/"):
            return self._ready(path.removeprefix("/readyz/"))
        return web.Response(status=404, text="not found: try /metrics, /healthz, /readyz or /readyz/NAME\n")

    async def _scrape(self, accept: str) -> web.Response:
        if self._scrapes >= max(1, most() // 4):
            return web.Response(
                status=503, text="cannot scrape: too many scrapes already wait; scrape less often\n", headers={"Retry-After": "1"}
            )
        self._scrapes += 1
        try:
            async with self._turn:
                await asyncio.sleep(0)
                body, content_type = self._expose(accept)
        finally:
            self._scrapes -= 1
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _healthy(self) -> web.Response:
        """Answer 200 unless tasks are dead or hung; any answer shows that the loop runs."""
        if unwell := self._unwell():
            return web.Response(status=503, text="\n".join(unwell) + "\n")
        return web.Response(text="ok\n")

    def _ready(self, name: str | None) -> web.Response:
        now = self._clock.now()
        if name is not None and self._store.profile(name) is None:
            return web.Response(status=404, text="no such identity\n")
        names = [name] if name is not None else [profile.name for profile in self._store.profiles() if profile.required]
        waiting = [one for one in names if not self._store.delivered(one, now)]
        if not waiting:
            return web.Response(text="ok\n")
        lines = [f"{one}: {self._store.state(one, now)}, not delivered everywhere" for one in waiting]
        return web.Response(status=503, text="\n".join(lines) + "\n")
