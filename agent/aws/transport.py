"""botocore's requests over the process's one aiohttp session: no redirect, no environment, no second TLS context.

Stands where aiobotocore's own HTTP session would: that one follows redirects, honours `HTTPS_PROXY` and makes a
connection pool and a TLS context for each client.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from agent.aws.refusals import RefusedError
from agent.errors import RefreshError, Rejected, Unavailable, unreachable
from agent.settings import Url

if TYPE_CHECKING:
    import aiohttp

LIMIT = 256 * 1024
"""Bytes: an answer of STS has less than ten thousand."""
CONNECT = 5.0
"""Seconds of the patience that reaching the host may take."""


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
        self._http = http
        self._endpoint = endpoint
        self._patience = patience
        self._authorities: tuple[tuple[float, int], ssl.SSLContext] | None = None

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
        status, headers, body = await self._exchange(request)
        if 300 <= status < 400:
            target = urlsplit(headers.get("Location", "")).hostname or "itself"
            raise Rejected(
                f"{self._endpoint.url.host} redirects to {target}, and a token is not sent after it",
                remedy="set provider.endpoint to the host that answers, or remove what redirects",
            )
        if status >= 400 and b"<ErrorResponse" not in body[:1024]:
            raise RefusedError(code="", text="", status=status, retry_after=headers.get("Retry-After", ""))
        return AioAWSResponse(request.url, status, headers, _Body(body))

    async def _exchange(self, request: Any) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body. Raises Unavailable or Rejected, with nothing of the request in it."""
        import aiohttp  # noqa: PLC0415  # 27 MiB; there anyway where the agent listens or asks
        from yarl import URL  # noqa: PLC0415  # part of it

        session = await self._http()
        authorities = self._trusted()
        headers = {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in request.headers.items()}
        try:
            async with session.request(
                request.method,
                URL(request.url, encoded=True),
                data=request.body,
                headers=headers | {"Accept-Encoding": "identity"},
                allow_redirects=False,
                proxy=self._endpoint.proxy.text if self._endpoint.proxy else None,
                ssl=authorities or True,
                timeout=aiohttp.ClientTimeout(total=self._patience, connect=min(CONNECT, self._patience)),
            ) as response:
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > LIMIT:
                        break
                else:
                    return response.status, response.headers, bytes(body)
                failure: RefreshError = Unavailable(f"{self._endpoint.url.host} answered at greater length than STS ever does")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = self._failure(error)
        raise failure  # outside, so that it carries no context to be printed

    def _failure(self, error: Exception) -> RefreshError:
        import aiohttp  # noqa: PLC0415  # see above

        host = self._endpoint.url.host
        match error:
            case TimeoutError():
                return Unavailable(f"{host} did not answer within {self._patience:g} s")
            case aiohttp.ClientConnectorCertificateError():
                reason = getattr(error.certificate_error, "verify_message", "") or "it cannot be verified"
                return Rejected(
                    f"{host} has shown a certificate that is not trusted: {reason}",
                    remedy="correct provider.endpoint, or set provider.caFile to the authority that signed it",
                )
            case aiohttp.ClientHttpProxyError() if 400 <= error.status < 500 and error.status not in {408, 429}:
                return Rejected(
                    f"the proxy refused {host} with status {error.status}", remedy="check provider.proxy and what it lets through"
                )
            case aiohttp.ClientHttpProxyError() | aiohttp.ClientProxyConnectionError():
                return Unavailable(f"the proxy could not reach {host}, or could not be reached", remedy="check provider.proxy")
            case aiohttp.ClientConnectorDNSError():
                return Unavailable(f"{host} has no address", remedy="check provider.region and the name resolution of this machine")
            case aiohttp.ClientConnectorSSLError():
                return Unavailable(f"{host} broke off the TLS handshake")
            case aiohttp.ClientConnectorError():
                return Unavailable(
                    f"{host} could not be reached: {unreachable(error.os_error)}",
                    remedy="look for a firewall or network policy on the way; or set provider.proxy",
                )
            case _:
                return Unavailable(f"{host} broke off the exchange ({type(error).__name__})")

    def _trusted(self) -> ssl.SSLContext | None:
        """The authorities in `caFile`, read again when it changes; None for the system's. Raises Rejected."""
        if not self._endpoint.ca_file:
            return None
        try:
            file = Path(self._endpoint.ca_file).stat()
            version = (file.st_mtime, file.st_ino)
            if self._authorities is None or self._authorities[0] != version:
                self._authorities = version, ssl.create_default_context(cafile=self._endpoint.ca_file)
        except OSError as error:  # ssl.SSLError too: not PEM
            reason = error.strerror or "not a PEM file"
        else:
            return self._authorities[1]
        raise Rejected(
            f"provider.caFile {self._endpoint.ca_file} cannot be used: {reason}", remedy="make it a readable file of PEM certificates"
        )


class _Body:
    """What aiobotocore awaits the bytes of."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body
