"""The connections to one API server, by kubernetes_asyncio's client: raw answers, no redirect, nothing from the environment."""

import os
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from agent import __version__
from agent.errors import RefreshError, Rejected, Unavailable, without_context
from agent.kube.credentials import ApiCredentials

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import aiohttp

CONNECT_TIMEOUT_SECONDS = 5.0
STREAM = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""Level, option, value: after 30 s of silence a probe every 10 s, and after three without an answer the stream has ended."""
MFD_NOEXEC_SEAL = 0x8
"""https://man7.org/linux/man-pages/man2/memfd_create.2.html"""


class Unanswered(Unavailable):  # named by the reaction, as the others
    """The API server did not answer at all: its machine, or the network, is down."""


class _RedirectedError(Exception):
    """Another server answered with a redirect."""


class Connection:
    """Opened when made, which needs a running loop; closed when its last user has left, once it is retired."""

    def __init__(self, access: ApiCredentials) -> None:
        self.access = access
        self._api = _client(access)
        self._users = 0
        self._retired = False

    async def request(
        self,
        access: ApiCredentials,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        body: object = None,
        timeout: "aiohttp.ClientTimeout",  # noqa: ASYNC109  # one for each phase, which only aiohttp can keep
    ) -> "aiohttp.ClientResponse":
        """Return the answer's head, whatever its status; the caller reads and closes it. Raises Unavailable or Rejected."""
        headers = {
            "Accept": "application/json, */*",
            "Accept-Encoding": "identity",
        }  # the issuer's keys are of a type of their own; kubectl asks likewise
        if access.token:
            headers["authorization"] = f"Bearer {access.token.reveal()}"
        import aiohttp  # noqa: PLC0415  # 27 MiB; kubernetes_asyncio has loaded it

        with without_context():
            try:
                response: aiohttp.ClientResponse = await self._api.call_api(
                    path,
                    method,
                    query_params=list(query),
                    header_params=headers,
                    body=body,
                    _preload_content=False,
                    _request_timeout=timeout,
                )
            except _RedirectedError:
                raise Rejected(
                    f"{self.access.server} redirects, and the agent follows no redirect with its token",
                    remedy="set the address of the API server itself",
                ) from None
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise broken(error, self.access.server, Unanswered) from None
            else:
                return response

    async def __aenter__(self) -> Self:
        self._users += 1
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._users -= 1
        if self._retired and not self._users:
            await self._api.close()

    async def retire(self) -> None:
        """Close as soon as no request uses it."""
        self._retired = True
        if not self._users:
            await self._api.close()

    async def close(self) -> None:
        """Close at once, also while a request uses it."""
        await self._api.close()


def load() -> None:
    """Import kubernetes_asyncio, so that the next connection opens fast."""
    import kubernetes_asyncio.client  # noqa: F401, PLC0415  # 38 MiB and 1 s: all 1250 modules, whichever one is wanted


def broken(error: Exception, server: str, kind: type[Unavailable] = Unavailable) -> RefreshError:
    """Return the failure to raise for a failed exchange; it repeats no part of the request."""
    import aiohttp  # noqa: PLC0415  # see `Connection.request`

    match error:
        case TimeoutError():
            return kind(f"{server} did not answer in time")
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", "") or "it cannot be verified"
            return Rejected(
                f"{server} has shown a certificate that is not trusted: {reason}",
                remedy="check the cluster's CA: ca.crt beside the agent's own token, or certificate-authority of the kubeconfig",
            )
        case aiohttp.ClientConnectorDNSError():
            return kind(f"{server} has no address", remedy="check the name resolution of this machine")
        case aiohttp.ClientConnectorError():
            return kind(f"{server} could not be reached: {error.os_error.strerror or 'no reason given'}")
        case _:
            return kind(f"{server} broke off the exchange ({type(error).__name__})")


def keep_alive(response: "aiohttp.ClientResponse") -> None:
    """Have the kernel ask whether the other side of a stream is still there, when nothing comes from it."""
    transport = response.connection.transport if response.connection else None
    found = transport.get_extra_info("socket") if transport else None
    if found is not None:
        for level, option, value in STREAM:
            found.setsockopt(level, option, value)


def _client(access: ApiCredentials) -> Any:
    """kubernetes_asyncio's client over a session of ours. Raises Rejected if certificates cannot be used."""
    import aiohttp  # noqa: PLC0415  # see `Connection.request`
    from kubernetes_asyncio.client import ApiClient, Configuration  # noqa: PLC0415  # see `load`

    configuration = Configuration(host=access.server)
    configuration.tls_server_name = access.server_name or None
    configuration.proxy = access.proxy or None
    configuration.connection_pool_maxsize = 0  # no limit of its own: each watch holds a connection, and requests must not wait for one
    configuration.disable_strict_ssl_verification = True  # Python 3.13 refuses CAs without a key identifier; kubeadm made such
    reading = "the cluster's CA"
    with without_context():
        try:
            with (
                _in_memory(access.ca) as configuration.ssl_ca_cert,
                _in_memory(access.certificate) as configuration.cert_file,
                _in_memory(access.key.reveal() if access.key else "") as configuration.key_file,
            ):
                reading = "the cluster's CA or the agent's client certificate"
                api = ApiClient(configuration)
        except ssl.SSLError:
            raise Rejected(f"{reading} is not PEM that can be used", remedy="check the kubeconfig, or ca.crt") from None
        except OSError as error:
            raise Unavailable(
                f"cannot hold {reading} in memory: {error.strerror}", remedy="allow the agent memfd_create, and mount /proc"
            ) from None
        else:
            theirs = api.rest_client.pool_manager  # it would take proxies and passwords from the environment, and follow redirects
            connector = theirs.connector
            theirs.detach()
            api.rest_client.pool_manager = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, middlewares=(_stay,), auto_decompress=False
            )
            api.user_agent = f"workload-identity-agent/{__version__}"
            return api


@contextmanager
def _in_memory(text: str) -> Iterator[str | None]:
    """A path by which OpenSSL, which takes a client's key from a file only, finds the text; on no disk. None for no text."""
    if not text:
        yield None
        return
    file = _memory()
    try:
        with os.fdopen(file, "wb", closefd=False) as writer:
            writer.write(text.encode())
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def _memory() -> int:
    """A file descriptor; never of a program, where the kernel knows that difference (6.3; vm.memfd_noexec=2 refuses others)."""
    try:
        return os.memfd_create("wi-agent", os.MFD_CLOEXEC | MFD_NOEXEC_SEAL)
    except OSError:
        return os.memfd_create("wi-agent", os.MFD_CLOEXEC)


async def _stay(
    request: "aiohttp.ClientRequest", handler: "Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]"
) -> "aiohttp.ClientResponse":
    """aiohttp's middleware: ends at the first redirect, before it is followed."""
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        raise _RedirectedError
    return response
