"""What stands before an API server and breaks what a test wants broken; it counts every request."""

import asyncio
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web


@dataclass
class Fault:
    """What befalls a request instead of being answered."""

    status: int = 0
    headers: dict = field(default_factory=dict)
    body: str = ""
    cut: bool = False
    """The connection ends without an answer."""
    match: str = ""
    """Of the path with its query; others pass."""


class Proxy:
    def __init__(self, upstream, ca, port, server_context):
        self.upstream = upstream
        self.port = port
        self.requests = []
        """(method, path with query) of each, in order."""
        self.tokens = []
        """The Authorization of each."""
        self.faults = []
        """Each befalls one request."""
        self.always = None
        """Befalls every request while set."""
        self.delay = 0.0
        self._trusted = ssl.create_default_context(cafile=ca)
        self._context = server_context
        self._runner = None
        self._session = None
        self._open = set()

    def count(self, text=""):
        return sum(text in f"{method} {path}" for method, path in self.requests)

    async def up(self):
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._context, reuse_address=True)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def down(self):
        """Nobody listens any more, and what was open is cut."""
        if self._runner:
            self.cut()
            await self._runner.cleanup()
            await self._session.close()
            self._runner = None

    def cut(self):
        """Whatever is being answered breaks off."""
        for transport in list(self._open):
            transport.abort()

    async def _answer(self, request):
        self.requests.append((request.method, request.path_qs))
        self.tokens.append(request.headers.get("Authorization", ""))
        fault = self.always
        for one in self.faults:
            if one.match in request.path_qs:
                self.faults.remove(one)
                fault = one
                break
        if self.delay:
            await asyncio.sleep(self.delay)
        if fault and fault.match in request.path_qs:
            if fault.cut:
                request.transport.abort()
                return web.Response(status=500)
            return web.Response(status=fault.status, headers=fault.headers, text=fault.body, content_type="application/json")
        self._open.add(request.transport)
        try:
            return await self._pass_on(request)
        finally:
            self._open.discard(request.transport)

    async def _pass_on(self, request):
        headers = {name: value for name, value in request.headers.items() if name not in {"Host", "Transfer-Encoding", "Connection"}}
        body = await request.read()
        url = f"{self.upstream}{request.raw_path}"
        import yarl

        async with self._session.request(
            request.method, yarl.URL(url, encoded=True), headers=headers, data=body or None, ssl=self._trusted, allow_redirects=False
        ) as answer:
            kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After", "Location") if name in answer.headers}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


@asynccontextmanager
async def before(upstream, ca, server_context):
    proxy = Proxy(upstream, ca, 0, server_context)
    await proxy.up()
    try:
        yield proxy
    finally:
        await proxy.down()
