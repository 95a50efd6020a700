"""One request to a cloud over the process's shared session: no redirect, no environment, no unlimited response.

A failed request raises an error named by its reaction, which neither quotes the request nor refers to it.
"""

import errno
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.errors import RefreshError, Rejected, Unavailable, unreachable, without_context
from agent.settings import Url

if TYPE_CHECKING:
    import aiohttp

MAX_BODY_BYTES = 256 * 1024
"""A response with a token has less than twenty thousand."""
MAX_ERROR_BODY_BYTES = 64 * 1024
"""Of a longer error response the agent uses only the status and the headers."""
REQUEST_TIMEOUT_SECONDS = 10.0
"""For one request, from connecting to the last byte."""
CONNECT_TIMEOUT_SECONDS = 5.0
"""The part of it that connecting may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """Sends the requests of one identity, as the agent's own configuration says."""

    def __init__(
        self,
        http: "Callable[[], Awaitable[aiohttp.ClientSession]]",
        *,
        whose: str,
        ca_file: str | None = None,
        proxy: Url | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        self._http = http
        self._whose = whose
        """Empty if several identities share the client; then the caller adds the name."""
        self._ca_file = ca_file
        self._proxy = proxy
        self._timeout = timeout
        self._authorities: tuple[tuple[float, int], ssl.SSLContext] | None = None

    async def send(self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> HttpResponse:
        """Send one request. Raises Unavailable or Rejected unless a complete response arrives that is not a redirect."""
        host = urlsplit(url).netloc.rpartition("@")[2].lower()
        answer = await self._ask(method, url, host, headers or {}, body)
        if 300 <= answer.status < 400:
            raise self._rejected(
                f"{host} redirects to {_target(answer.headers)}, and a token is not sent after it",
                "set provider.endpoint to the host that answers, or remove what redirects",
            )
        return answer

    async def _ask(self, method: str, url: str, host: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        import aiohttp  # noqa: PLC0415  # 27 MiB; there anyway where the agent listens or asks
        from yarl import URL  # noqa: PLC0415  # part of it

        session = await self._http()
        authorities = self._trusted()
        with without_context():
            try:
                async with session.request(
                    method,
                    URL(url, encoded=True),
                    data=body,
                    headers={**headers, "Accept-Encoding": "identity"},
                    allow_redirects=False,
                    proxy=self._proxy.text if self._proxy else None,
                    ssl=authorities or True,
                    timeout=aiohttp.ClientTimeout(total=self._timeout, connect=min(CONNECT_TIMEOUT_SECONDS, self._timeout)),
                ) as response:
                    whole = bytearray()
                    limit = MAX_BODY_BYTES if response.status < 400 else MAX_ERROR_BODY_BYTES
                    async for chunk in response.content.iter_any():
                        whole += chunk
                        if len(whole) > limit:
                            response.close()  # the rest would be read before the connection is used again
                            break
                    if len(whole) <= limit or response.status >= 400:
                        body = bytes(whole) if len(whole) <= limit else b""
                        return HttpResponse(status=response.status, headers=response.headers, body=body)
                    raise self._unavailable(f"{host} answered with more than {MAX_BODY_BYTES // 1024} KiB")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._failure(error, host) from None

    def _failure(self, error: Exception, host: str) -> RefreshError:
        import aiohttp  # noqa: PLC0415  # see above

        match error:
            case TimeoutError():
                return self._unavailable(
                    f"{host} did not answer within {self._timeout:g} s",
                    "the agent tries on; if it stays, look for what drops packets on the way, or set provider.proxy",
                )
            case aiohttp.ClientConnectorCertificateError():
                reason = getattr(error.certificate_error, "verify_message", "") or "it cannot be verified"
                return self._rejected(
                    f"{host} has shown a certificate that is not trusted: {reason}",
                    "correct provider.endpoint, or set provider.caFile to the authority that signed it",
                )
            case aiohttp.ClientHttpProxyError() if 400 <= error.status < 500 and error.status not in {408, 429}:
                return self._rejected(
                    f"the proxy refused {host} with status {error.status}", "check provider.proxy and what it lets through"
                )
            case aiohttp.ClientHttpProxyError() | aiohttp.ClientProxyConnectionError():
                return self._unavailable(f"the proxy could not reach {host}, or could not be reached", "check provider.proxy")
            case aiohttp.ClientConnectorDNSError():
                return self._unavailable(f"{host} has no address", "check the provider's settings and the name resolution of this machine")
            case aiohttp.ClientConnectorSSLError():
                return self._unavailable(f"{host} broke off the TLS handshake")
            case aiohttp.ClientConnectorError() if error.os_error.errno == errno.ECONNREFUSED:
                return self._unavailable(
                    f"{host} could not be reached: {unreachable(error.os_error)}",
                    "nothing listens there: correct provider.endpoint, if it is set; or look for a network policy that refuses it",
                )
            case aiohttp.ClientConnectorError():
                return self._unavailable(
                    f"{host} could not be reached: {unreachable(error.os_error)}",
                    "look for a firewall or network policy on the way; or set provider.proxy",
                )
            case _:
                return self._unavailable(f"{host} broke off the exchange ({type(error).__name__})")

    def _trusted(self) -> ssl.SSLContext | None:
        """Return the authorities in `caFile`, read again when it changes; None for the system's. Raises Rejected."""
        if not self._ca_file:
            return None
        try:
            file = Path(self._ca_file).stat()
            version = (file.st_mtime, file.st_ino)
            if self._authorities is None or self._authorities[0] != version:
                self._authorities = version, ssl.create_default_context(cafile=self._ca_file)
        except ssl.SSLError:
            reason = "not a PEM file"
        except OSError as error:
            reason = error.strerror or type(error).__name__
        else:
            return self._authorities[1]
        raise self._rejected(f"provider.caFile {self._ca_file} cannot be used: {reason}", "make it a readable file of PEM certificates")

    def _rejected(self, message: str, remedy: str) -> Rejected:
        return Rejected(self._named(message), remedy=remedy)

    def _unavailable(self, message: str, remedy: str = "") -> Unavailable:
        return Unavailable(self._named(message), remedy=remedy)

    def _named(self, message: str) -> str:
        return f"{self._whose}: {message}" if self._whose else message


def _target(headers: Mapping[str, str]) -> str:
    """Return the host alone: the rest of a Location may repeat the request."""
    try:
        return urlsplit(headers.get("Location", "")).hostname or "itself"
    except ValueError:
        return "nowhere"
