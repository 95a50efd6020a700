"""botocore's requests over the agent's own wire: no redirect, no environment, no second TLS context.

Stands where aiobotocore's own HTTP session would: that one follows redirects, honours `HTTPS_PROXY` and makes a
connection pool and a TLS context for each client.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from agent.errors import Rejected
from agent.http.client import HttpClient
from agent.providers.aws.errors import ServiceError
from agent.settings import Url

if TYPE_CHECKING:
    import aiohttp


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where an AWS service is asked, and by which way. All of it from the agent's own configuration."""

    url: Url
    region: str
    ca_file: str | None = None
    """PEM; trusted in place of the system's authorities."""
    proxy: Url | None = None


class Transport:
    """One endpoint's way out; aiobotocore calls `send`."""

    def __init__(self, http: "Callable[[], Awaitable[aiohttp.ClientSession]]", endpoint: Endpoint, patience: float) -> None:
        self._endpoint = endpoint
        self._wire = HttpClient(http, whose="", ca_file=endpoint.ca_file, proxy=endpoint.proxy, patience=patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """The session is shared and stays."""

    async def close(self) -> None:
        """Nothing of its own to let go of."""

    async def send(self, request: Any) -> Any:
        """Takes an `AWSPreparedRequest`, gives an `AioAWSResponse` that holds its whole body."""
        from aiobotocore.awsrequest import AioAWSResponse  # noqa: PLC0415  # loaded with the client by now

        if urlsplit(request.url).netloc.lower() != self._endpoint.url.host:
            raise Rejected("the SDK chose another host than the configured one", remedy="this is a bug of the agent: report it")
        headers = {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in request.headers.items()}
        answer = await self._wire.send(request.method, request.url, headers=headers, body=request.body)
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
    """What aiobotocore awaits the bytes of."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body
