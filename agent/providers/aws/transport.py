"""botocore's requests over the agent's own HTTP client: no redirect, no environment, no second TLS context.

Replaces aiobotocore's own HTTP session, which follows redirects, honours `HTTPS_PROXY` and makes a connection pool and a
TLS context for each client.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from agent.errors import Rejected
from agent.http.client import HttpClient
from agent.providers.exchange import ServiceError
from agent.settings import Url

if TYPE_CHECKING:
    import aiohttp


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of an AWS service and the way there, from the agent's own configuration alone."""

    url: Url
    region: str
    ca_file: str | None = None
    """PEM; trusted instead of the system's authorities."""
    proxy: Url | None = None


class Transport:
    """The HTTP session of one endpoint's clients; aiobotocore calls `send`."""

    def __init__(self, http: "Callable[[], Awaitable[aiohttp.ClientSession]]", endpoint: Endpoint, timeout: float) -> None:
        self._endpoint = endpoint
        self._client = HttpClient(http, whose="", ca_file=endpoint.ca_file, proxy=endpoint.proxy, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Keep the session, which is shared."""

    async def close(self) -> None:
        """Keep the session, which is shared."""

    async def send(self, request: Any) -> Any:
        """Send an `AWSPreparedRequest`; return an `AioAWSResponse` that holds its whole body."""
        from aiobotocore.awsrequest import AioAWSResponse  # noqa: PLC0415  # loaded with the client by now

        if urlsplit(request.url).netloc.lower() != self._endpoint.url.host:
            raise Rejected("the SDK chose another host than the configured one", remedy="this is a bug of the agent: report it")
        headers = {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in request.headers.items()}
        answer = await self._client.send(request.method, request.url, headers=headers, body=request.body)
        body = answer.body if _plain_xml(answer.body) else b""
        if answer.status >= 400 and b"<ErrorResponse" not in body[:1024]:
            raise ServiceError(code="", text="", status=answer.status, retry_after=answer.headers.get("Retry-After", ""))
        return AioAWSResponse(request.url, answer.status, answer.headers, _Body(body))


def _plain_xml(body: bytes) -> bool:
    """Return whether botocore's XML parser may see it: entities multiply a body, and STS declares none.

    UTF-16, which XML also allows, has a NUL in each letter of a tag, and would hide the declaration.
    """
    return b"<!DOCTYPE" not in body and b"\0" not in body


class _Body:
    """The body that aiobotocore awaits."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body
