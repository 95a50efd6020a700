"""A security token service of all four clouds that grants a credential to whoever asks. `python -m bench.grants PORT`."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

from aiohttp import web

from bench.sts import session

LIFETIME = 3600


def alibaba() -> dict[str, object]:
    """As https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc has it."""
    ends = datetime.now(UTC) + timedelta(seconds=LIFETIME)
    keys = {"AccessKeyId": "STS.x", "AccessKeySecret": "s" * 44, "SecurityToken": "t" * 900, "Expiration": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
    return {"RequestId": "r", "Credentials": keys}


async def answer(request: web.BaseRequest) -> web.Response:
    form = parse_qs((await request.read()).decode())
    action = {**{key: [value] for key, value in request.query.items()}, **form}.get("Action", [""])[0]
    if request.path.endswith("/oauth2/v2.0/token"):  # Entra ID, RFC 6749
        return web.json_response({"token_type": "Bearer", "expires_in": LIFETIME, "ext_expires_in": LIFETIME, "access_token": "a" * 1500})
    if request.path == "/v1/token":  # Google, RFC 8693
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return web.json_response(
            {"access_token": "ya29." + "a" * 900, "issued_token_type": kind, "token_type": "Bearer", "expires_in": LIFETIME}
        )
    if action == "AssumeRoleWithOIDC":
        return web.json_response(alibaba())
    return web.Response(text=session(LIFETIME), content_type="text/xml")


async def serve(port: int) -> None:
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
