"""The floor: the least that can be called an aiohttp server. `python -m bench.bare PORT`."""

import asyncio
import sys

from aiohttp import web


async def answer(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def serve(port: int) -> None:
    application = web.Application()
    application.router.add_get("/healthz", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
