"""The listener of the issuer's two public documents: GET and HEAD, and nothing else.

A wrong path or method is answered as Gardener's issuer answers it (gardener-discovery-server).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from agent.issuer.discovery import documents
from agent.issuer.held_keys import HeldKeys


def answering(url: str, keys: HeldKeys) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """Answers GET and HEAD for the two documents, below the path of the issuer's URL and at the root.

    Both, because a proxy in front may strip the path or keep it.
    """
    prefix = urlsplit(url).path.rstrip("/")
    at_root = documents(url, keys)
    known = {**at_root, **{prefix + path: document for path, document in at_root.items()}}

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        document = known.get(request.rel_url.raw_path)
        if document is None:
            return _answer(404, {"code": 404, "message": "not found"})
        if request.method not in {"GET", "HEAD"}:
            return _answer(405, {"code": 405, "message": "method not allowed"}, Allow="GET, HEAD")
        if not keys.public_keys()["keys"]:
            return _answer(503, {"code": 503, "message": "no key yet"}, **{"Retry-After": "1", "Cache-Control": "no-store"})
        return _answer(200, document(), **{"Cache-Control": f"public, max-age={keys.max_age}"})

    return answer


def _answer(status: int, document: Mapping[str, Any], **headers: str) -> web.Response:
    return web.json_response(document, status=status, headers={"X-Content-Type-Options": "nosniff", **headers})
