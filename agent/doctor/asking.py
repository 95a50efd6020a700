"""How SDKs ask the metadata endpoint, dialect by dialect, and what a good answer looks like."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from agent.doctor.case import PATIENCE
from agent.model import Secret
from agent.variables import Spot

if TYPE_CHECKING:
    import aiohttp

LARGEST = 1 << 16
"""Bytes of an answer."""
ECS_TTL, ECS_TOKEN = "X-aliyun-ecs-metadata-token-ttl-seconds", "X-aliyun-ecs-metadata-token"
TTL, TOKEN = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, and from where."""

    url: str
    status: int
    body: bytes = field(repr=False)

    @property
    def answer(self) -> dict[str, Any]:
        """Its members; none where it is no JSON object."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def reason(self) -> str:
        """What a refusal says, as a person may read it."""
        answer = self.answer
        said = (
            answer.get("message")
            or answer.get("Message")
            or answer.get("error_description")
            or (self.body.decode("ascii", "replace") if not answer and self.status != 200 else "")
        )
        return "".join(filter(str.isprintable, str(said)))[:300]

    @property
    def brings(self) -> str:
        """The credential in it, without the credential; empty where there is none."""
        answer = self.answer
        if answer.get("AccessKeyId") and answer.get("Expiration"):
            return f"a session until {answer['Expiration']}"
        if answer.get("access_token") and answer.get("expires_in"):
            return f"an access token for {answer['expires_in']} s"
        return ""


class Asker:
    """Asks about one identity. Raises what aiohttp raises, and TimeoutError."""

    def __init__(
        self, session: "aiohttp.ClientSession", name: str, presented: Secret | None, facts: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._session = session
        self._name = name
        self._presented = presented
        """The authorization, in dialects that have one."""
        self._facts = facts
        """What the dialects know of the identity."""
        self.url = ""
        """What was asked last."""

    async def container(self, spot: Spot) -> Reply:
        """One request with the authorization."""
        authorization = self._presented.reveal() if self._presented else ""
        return await self._send("GET", f"{spot.base}/aws/{self._name}/credentials", {"Authorization": authorization})

    async def imds(self, spot: Spot) -> Reply:
        """A session token, the role's name, the role's credential."""
        base = spot.root or f"{spot.base}/aws/{self._name}/imds"
        reply = await self._send("PUT", f"{base}/latest/api/token", {TTL: "60"})
        if reply.status == 200:
            headers = {TOKEN: reply.body.decode("ascii", "replace")}
            reply = await self._send("GET", f"{base}/latest/meta-data/iam/security-credentials/", headers)
        if reply.status == 200:
            reply = await self._send("GET", reply.url + reply.body.decode("ascii", "replace"), headers)
        return reply

    async def gce(self, spot: Spot) -> Reply:
        """The access token, without the questions before it."""
        url = f"{spot.root}/computeMetadata/v1/instance/service-accounts/default/token"
        return await self._send("GET", url, {"Metadata-Flavor": "Google"})

    async def appservice(self, spot: Spot) -> Reply:
        """The identity's own access token, with the authorization."""
        url = f"{spot.base}/azure/{self._name}/token?{self._query('2019-08-01')}"
        return await self._send("GET", url, {"X-IDENTITY-HEADER": self._presented.reveal() if self._presented else ""})

    async def azure_imds(self, spot: Spot) -> Reply:
        """The same, without one."""
        url = f"{spot.root}/metadata/identity/oauth2/token?{self._query('2018-02-01')}"
        return await self._send("GET", url, {"Metadata": "true"})

    async def uri(self, spot: Spot) -> Reply:
        """One request with the authorization in its path, which is not shown."""
        authorization = self._presented.reveal() if self._presented else ""
        shown = f"{spot.base}/alibaba/{self._name}/…/credentials"
        return await self._send("GET", shown.replace("…", quote(authorization, safe="")), {}, shown=shown)

    async def ecs(self, spot: Spot) -> Reply:
        """A session token, the role's name, the role's credential."""
        reply = await self._send("PUT", f"{spot.root}/latest/api/token", {ECS_TTL: "60"})
        if reply.status == 200:
            headers = {ECS_TOKEN: reply.body.decode("ascii", "replace")}
            reply = await self._send("GET", f"{spot.root}/latest/meta-data/ram/security-credentials/", headers)
        if reply.status == 200:
            reply = await self._send("GET", reply.url + reply.body.decode("ascii", "replace"), headers)
        return reply

    def _query(self, version: str) -> str:
        return urlencode({"api-version": version, "resource": self._facts.get("resource", "")})

    async def _send(self, method: str, url: str, headers: Mapping[str, str], *, shown: str = "") -> Reply:
        import aiohttp  # noqa: PLC0415  # loaded by the session anyway

        self.url = shown or url
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with self._session.request(method, url, headers=headers, allow_redirects=False, timeout=timeout) as response:
            return Reply(self.url, response.status, await response.content.read(LARGEST))


ASKED: Mapping[str, Callable[[Asker, Spot], Awaitable[Reply]]] = {
    "container": Asker.container,
    "imds": Asker.imds,
    "gce": Asker.gce,
    "appservice": Asker.appservice,
    "azure-imds": Asker.azure_imds,
    "uri": Asker.uri,
    "ecs": Asker.ecs,
}
"""By dialect."""
