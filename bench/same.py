"""The floor of the endpoint: a `web.Application` with one route that gives the content of a file.

`python -m bench.same PORT FILE [ROUTE]`
"""

import asyncio
import sys
from pathlib import Path

from aiohttp import web


async def serve(port: int, body: bytes, route: str = "/aws/{name}/credentials") -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    application = web.Application()
    application.router.add_get(route, answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]).read_bytes(), *sys.argv[3:]))
