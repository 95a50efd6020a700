"""An STS that grants a session to whoever asks. `python -m bench.sts PORT SECONDS [DELAY]`; it lives so long, and is given so late."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from itertools import count

from aiohttp import web

NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
numbers = count(1)


def session(lifetime: float) -> str:
    """As long as a real one."""
    expires = datetime.now(UTC) + timedelta(seconds=lifetime)
    keys = (
        f"<AccessKeyId>ASIA{next(numbers):016}</AccessKeyId><SecretAccessKey>{'s' * 40}</SecretAccessKey>"
        f"<SessionToken>{'t' * 900}</SessionToken><Expiration>{expires:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
    )
    result = f"<AssumeRoleWithWebIdentityResult><Credentials>{keys}</Credentials></AssumeRoleWithWebIdentityResult>"
    return f'<AssumeRoleWithWebIdentityResponse xmlns="{NAMESPACE}">{result}</AssumeRoleWithWebIdentityResponse>'


async def serve(port: int, lifetime: float, delay: float = 0.0) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        await request.read()
        await asyncio.sleep(delay)
        return web.Response(text=session(lifetime), content_type="text/xml")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), *map(float, sys.argv[2:])))
