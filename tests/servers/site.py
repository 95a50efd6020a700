"""A local aiohttp server for a test: any free port, ends with the test."""

import ssl
from collections.abc import Awaitable, Callable
from typing import Self

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """Passes every request to `answer` and counts it; by itself it answers 200 with nothing."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests = 0
        self.port = 0

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._count), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def _count(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests += 1
        return await self.answer(request)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response()
