"""Requests to the metadata endpoint as SDKs send them, one function for each dialect."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from agent.doctor.case import REQUEST_TIMEOUT_SECONDS
from agent.envvars import ServedAt
from agent.model import Secret
from agent.parsing import json_object
from agent.refusals import REFUSAL_HEADER

if TYPE_CHECKING:
    import aiohttp

MAX_ANSWER_BYTES = 1 << 16
ECS_TTL, ECS_TOKEN = "X-aliyun-ecs-metadata-token-ttl-seconds", "X-aliyun-ecs-metadata-token"
TTL, TOKEN = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
FORWARDED = MappingProxyType({"X-Forwarded-For": "192.0.2.1"})
"""A header that only a proxy sends. The address is reserved for documentation (RFC 5737)."""
WRONG = Secret("not-an-authorization-of-an-agent")
"""An authorization that no agent accepts."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The endpoint's answer, and its address."""

    url: str
    status: int
    body: bytes = field(repr=False)
    flavour: str = ""
    """`Metadata-Flavor`."""
    kind: str = ""
    """Its media type."""
    refusal: str = ""
    """The agent's code for why it refused the request; empty if the header is missing."""

    @property
    def answer(self) -> dict[str, Any]:
        """Its members; empty if it is not a JSON object."""
        return json_object(self.body) or {}

    @property
    def reason(self) -> str:
        """The message of a refusal, without control characters."""
        answer = self.answer
        said = (
            answer.get("message")
            or answer.get("Message")
            or answer.get("error_description")
            or (self.body.decode("ascii", "replace") if not answer and self.status != 200 else "")
        )
        return "".join(filter(str.isprintable, str(said)))[:300]

    @property
    def word(self) -> str:
        """The body if it is a single word, which is safe in a header or a path; otherwise empty."""
        return found.group().decode() if (found := re.fullmatch(rb"[\x21-\x7e]{1,512}", self.body)) else ""


class Asker:
    """A client of one identity. Its methods raise aiohttp's errors and TimeoutError."""

    def __init__(
        self,
        session: "aiohttp.ClientSession",
        name: str,
        presented: Secret | None,
        facts: Mapping[str, str] = MappingProxyType({}),
        *,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`more`: headers for each request."""
        self._session = session
        self._name = name
        self._presented = presented
        """The authorization, in dialects that require one."""
        self._more = more
        self.url = ""
        """The address of the last request, without the authorization."""
        self.resource = facts.get("resource", "")
        """The resource requested in Azure's dialects."""

    async def container(self, spot: ServedAt) -> Reply:
        """Send one request with the authorization."""
        authorization = self._presented.reveal() if self._presented else ""
        return await self._send("GET", f"{spot.base}/aws/{self._name}/credentials", {"Authorization": authorization})

    async def imds(self, spot: ServedAt) -> Reply:
        """Request a session token, the role's name and the role's credential."""
        return await self._descend(spot.root or f"{spot.base}/aws/{self._name}/imds", "iam", TTL, TOKEN)

    async def gce(self, spot: ServedAt) -> Reply:
        """Request the access token, without the requests that SDKs send before it."""
        url = f"{spot.root}/computeMetadata/v1/instance/service-accounts/default/token"
        return await self._send("GET", url, {"Metadata-Flavor": "Google"})

    async def appservice(self, spot: ServedAt) -> Reply:
        """Request the identity's own access token, with the authorization."""
        url = f"{spot.base}/azure/{self._name}/token?{self._query('2019-08-01')}"
        return await self._send("GET", url, {"X-IDENTITY-HEADER": self._presented.reveal() if self._presented else ""})

    async def azure_imds(self, spot: ServedAt) -> Reply:
        """Request the identity's own access token, without authorization."""
        url = f"{spot.root}/metadata/identity/oauth2/token?{self._query('2018-02-01')}"
        return await self._send("GET", url, {"Metadata": "true"})

    async def uri(self, spot: ServedAt) -> Reply:
        """Send one request with the authorization in its path; the shown address omits it."""
        authorization = self._presented.reveal() if self._presented else ""
        shown = f"{spot.base}/alibaba/{self._name}/…/credentials"
        return await self._send("GET", shown.replace("…", quote(authorization, safe="")), {}, shown=shown)

    async def ecs(self, spot: ServedAt) -> Reply:
        """Request a session token, the role's name and the role's credential."""
        return await self._descend(spot.root, "ram", ECS_TTL, ECS_TOKEN)

    async def _descend(self, base: str, service: str, ttl: str, token: str) -> Reply:
        """Return the last answer; a failure ends the sequence."""
        reply = await self._send("PUT", f"{base}/latest/api/token", {ttl: "60"})
        if reply.status != 200 or not reply.word:
            return reply
        headers = {token: reply.word}
        reply = await self._send("GET", f"{base}/latest/meta-data/{service}/security-credentials/", headers)
        if reply.status != 200 or not reply.word:
            return reply
        return await self._send("GET", reply.url + quote(reply.word, safe="+=,.@"), headers)

    def _query(self, version: str) -> str:
        return urlencode({"api-version": version, "resource": self.resource})

    async def _send(self, method: str, url: str, headers: Mapping[str, str], *, shown: str = "") -> Reply:
        import aiohttp  # noqa: PLC0415  # loaded by the session anyway

        self.url = shown or url
        timeout, whole = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS), {**headers, **self._more}
        async with self._session.request(method, url, headers=whole, allow_redirects=False, timeout=timeout) as response:
            body = b""
            while len(body) < MAX_ANSWER_BYTES and (part := await response.content.read(MAX_ANSWER_BYTES - len(body))):
                body += part
            headers = response.headers
            return Reply(
                self.url, response.status, body, headers.get("Metadata-Flavor", ""), response.content_type, headers.get(REFUSAL_HEADER, "")
            )


ASKED: Mapping[str, Callable[[Asker, ServedAt], Awaitable[Reply]]] = {
    "container": Asker.container,
    "imds": Asker.imds,
    "gce": Asker.gce,
    "appservice": Asker.appservice,
    "azure-imds": Asker.azure_imds,
    "uri": Asker.uri,
    "ecs": Asker.ecs,
}
"""By dialect."""
