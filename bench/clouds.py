"""Security token services of all four clouds in one, which grant to whoever asks.

`python -m bench.clouds PORT SECONDS`: what they grant lives so long.
"""

import asyncio
import sys
import time

from aiohttp import web

from bench.sts import session

TEXT = "t" * 1200
"""As long as a real token."""


async def serve(port: int, lifetime: float) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        body = await request.read()
        if request.path.endswith("/oauth2/v2.0/token"):  # Azure's
            return web.json_response({"token_type": "Bearer", "expires_in": int(lifetime), "access_token": TEXT})
        if request.path == "/v1/token":  # Google's
            issued = "urn:ietf:params:oauth:token-type:access_token"
            return web.json_response(
                {"access_token": TEXT, "issued_token_type": issued, "token_type": "Bearer", "expires_in": int(lifetime)}
            )
        if b"AssumeRoleWithWebIdentity" in body:  # AWS's
            return web.Response(text=session(lifetime), content_type="text/xml")
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + lifetime))
        keys = {"AccessKeyId": "STS.bench", "AccessKeySecret": "s" * 44, "SecurityToken": TEXT, "Expiration": expires}
        return web.json_response({"RequestId": "1", "Credentials": keys})  # Alibaba's

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
