"""One API server and one user: credentials read anew for each request, one retry after a 401, no other retries."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from agent.claims import read_token
from agent.clock import Clock
from agent.errors import NotReady, RefreshError, Rejected, Unavailable, without_context
from agent.kube.allowance import Allowance
from agent.kube.connection import CONNECT_TIMEOUT_SECONDS, Connection, Unanswered, broken, keep_alive, load
from agent.kube.credential_files import Credentials
from agent.kube.credentials import ApiCredentials, Reader
from agent.kube.errors import SETTLING, ApiError, Attempt, Caller, refused, sort
from agent.kube.outage import Outage
from agent.offload import in_thread
from agent.parsing import json_object

if TYPE_CHECKING:
    import aiohttp

LIMIT = 256 * 1024
"""Of one answer, except lists: a token, a review, keys."""
ERROR_LIMIT = 64 * 1024
"""Of an error's body; of a longer one the agent uses status and headers only."""
LISTS_PER_SECOND, LISTS_AT_ONCE = 40.0, 10.0
"""Of all watchers of one API server together: at most fifty in any second."""
WATCHES_PER_SECOND, WATCHES_AT_ONCE = 80.0, 20.0
STREAM_BYTES_PER_SECOND, STREAM_BYTES_AT_ONCE = 2.0 * 1024 * 1024, 16.0 * 1024 * 1024
"""Of all watches of one API server together; 5,000 changes at once are read without a pause."""
REQUEST_TIMEOUT_SECONDS = 10.0
"""For one request, all in all."""


class Kube:
    """The client of one API server. It loads and opens nothing before the first request."""

    def __init__(
        self, host: str, load: Callable[[Reader], ApiCredentials], clock: Clock, *, timeout: float = REQUEST_TIMEOUT_SECONDS
    ) -> None:
        self.host = host
        """The name under which requests are counted: the path of its kubeconfig, because its address may change."""
        self.ca = ""
        """The cluster's CA of the last request, PEM; empty before it, and if the system's authorities are used."""
        self.credentials = Credentials(load, clock)
        self.outage = Outage(clock)
        self.lists = Allowance(clock, per_second=LISTS_PER_SECOND, burst=LISTS_AT_ONCE)
        self.watches = Allowance(clock, per_second=WATCHES_PER_SECOND, burst=WATCHES_AT_ONCE)
        self.stream = Allowance(clock, per_second=STREAM_BYTES_PER_SECOND, burst=STREAM_BYTES_AT_ONCE)
        self._clock = clock
        self._timeout = timeout
        self._line: Connection | None = None
        self._opening = asyncio.Lock()

    async def ask(
        self, method: str, path: str, question: Attempt, *, whose: str, query: Iterable[tuple[str, str]] = (), body: object = None
    ) -> dict[str, Any]:
        """Return the answer's object. Raises NotReady, Unavailable or Rejected: `whose` and the question are in the text."""
        with without_context():
            try:
                return await self.send(method, path, query=query, body=body)
            except ApiError as error:
                failure = await self.failure(error, question, whose=whose)
                if error.status in SETTLING and self.outage.settling:
                    raise NotReady(failure.message, remedy=failure.remedy) from None
                raise failure from None
            except RefreshError as error:
                error.message = f"{whose}: {error.message}"
                raise

    async def send(self, method: str, path: str, *, query: Iterable[tuple[str, str]] = (), body: object = None) -> dict[str, Any]:
        """Return the answer's object, for callers that sort refusals. Raises ApiError if the API server refuses, else as `ask`."""
        async with self.opened(method, path, query=query, body=body) as response:
            found = json_object(await self._whole(response), longest=LIMIT)
        if found is None:
            raise Rejected(
                f"{self.host} answered {response.status} with a body that is not a JSON object",
                remedy="check that it is a Kubernetes API server, and check the proxy before it",
            )
        return found

    async def body(self, method: str, path: str, *, query: Iterable[tuple[str, str]] = (), longest: int) -> bytes:
        """Return the body of an answer, unread; raises as `send`."""
        async with self.opened(method, path, query=query) as response:
            return await self._whole(response, longest)

    async def failure(self, error: ApiError, question: Attempt, *, whose: str) -> RefreshError:
        """Return the failure to raise for a refusal."""
        return sort(error, question, await self.asker(), whose=whose, now=self._clock.now())

    async def asker(self) -> Caller:
        """Return the subject of the agent's own token."""
        try:
            access = await self.credentials.access()
        except RefreshError:
            return Caller(server=self.host)
        try:
            own = read_token(access.token.reveal() if access.token else "", whose="own", now=self._clock.now())
        except Rejected:  # a static token, or a certificate: only the API server knows
            return Caller(server=access.server, token=access.token)
        expired = own.expires_at if own.expires_at <= self._clock.now() else None
        return Caller(server=access.server, subject=own.subject, expired_at=expired, token=access.token)

    @asynccontextmanager
    async def opened(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        body: object = None,
        silence: float | None = None,
    ) -> "AsyncIterator[aiohttp.ClientResponse]":
        """Open an answer with status 2xx, its body unread; raises as `send`.

        `silence`: seconds without a byte after which the connection is closed, for a stream; without it the whole answer has to
        arrive within the client's timeout.
        """
        access, query = await self.credentials.access(), list(query)
        async with self._opened(access, method, path, query, body, silence) as response:
            if response.status != 401:
                yield await self._welcome(response)
                return
            error = refused(401, response.headers, await self._error_body(response))
        again = await self.credentials.access()
        if again == access and again.token == access.token:
            raise error
        async with self._opened(again, method, path, query, body, silence) as response:
            yield await self._welcome(response)

    async def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        line, self._line = self._line, None
        if line:
            await line.close()

    @asynccontextmanager
    async def _opened(
        self, access: ApiCredentials, method: str, path: str, query: list[tuple[str, str]], body: object, silence: float | None
    ) -> "AsyncIterator[aiohttp.ClientResponse]":
        async with await self._line_of(access) as line:
            import aiohttp  # noqa: PLC0415  # 27 MiB; there already, by `load`

            connect = min(CONNECT_TIMEOUT_SECONDS, self._timeout)
            total = None if silence else self._timeout
            timeout = aiohttp.ClientTimeout(total=total, connect=connect, sock_read=silence)
            try:
                async with asyncio.timeout(self._timeout):
                    response = await line.request(access, method, path, query=query, body=body, timeout=timeout)
            except TimeoutError:
                self.outage.unanswered()
                raise broken(TimeoutError(), access.server, Unanswered) from None
            except Unanswered:
                self.outage.unanswered()
                raise
            self.outage.answered()
            if silence:
                keep_alive(response)
            try:
                yield response
            finally:
                response.close() if silence else response.release()

    async def _line_of(self, access: ApiCredentials) -> Connection:
        """Return the connections for these credentials; those of earlier credentials are closed."""
        async with self._opening:
            if self._line is None or self._line.access != access:
                await in_thread("load kubernetes_asyncio", load)
                before, self._line = self._line, Connection(access)
                if before:
                    await before.retire()
            self.ca = access.ca
            return self._line

    async def _welcome(self, response: "aiohttp.ClientResponse") -> "aiohttp.ClientResponse":
        if not 200 <= response.status < 300:
            raise refused(response.status, response.headers, await self._error_body(response))
        return response

    async def _error_body(self, response: "aiohttp.ClientResponse") -> bytes:
        return await self._read_up_to(ERROR_LIMIT, response) or b""

    async def _whole(self, response: "aiohttp.ClientResponse", longest: int = LIMIT) -> bytes:
        whole = await self._read_up_to(longest, response)
        if whole is None:
            raise Unavailable(f"{self.host} sent a response that is larger than {longest} bytes")
        return whole

    async def _read_up_to(self, limit: int, response: "aiohttp.ClientResponse") -> bytes | None:
        """Return the body; None if it is longer. Raises Unavailable or Rejected."""
        import aiohttp  # noqa: PLC0415  # as above

        whole = bytearray()
        with without_context():
            try:
                async with asyncio.timeout(self._timeout):
                    async for chunk in response.content.iter_any():
                        whole += chunk
                        if len(whole) > limit:
                            response.close()  # the rest would be read before the connection is used again
                            return None
                    return bytes(whole)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise broken(error, self.host) from None


def text_at(found: Mapping[str, Any], *path: str) -> str:
    """Return the text at a path in an object, `""` if there is none: `text_at(answer, "status", "token")`."""
    here: Any = found
    for step in path:
        here = here.get(step) if isinstance(here, dict) else None
    return here if isinstance(here, str) else ""
