"""How SDKs ask the metadata endpoint, dialect by dialect, and what a good answer looks like."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.doctor.case import PATIENCE
from agent.model import Secret
from agent.variables import Spot

if TYPE_CHECKING:
    import aiohttp

LARGEST = 1 << 16
"""Bytes of an answer."""
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
        said = self.answer.get("message") or (self.body.decode("ascii", "replace") if not self.answer and self.status != 200 else "")
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

    def __init__(self, session: "aiohttp.ClientSession", name: str, presented: Secret | None) -> None:
        self._session = session
        self._name = name
        self._presented = presented
        """The authorization, in dialects that have one."""
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

    async def _send(self, method: str, url: str, headers: Mapping[str, str]) -> Reply:
        import aiohttp  # noqa: PLC0415  # loaded by the session anyway

        self.url = url
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with self._session.request(method, url, headers=headers, allow_redirects=False, timeout=timeout) as response:
            return Reply(url, response.status, await response.content.read(LARGEST))


ASKED: Mapping[str, Callable[[Asker, Spot], Awaitable[Reply]]] = {"container": Asker.container, "imds": Asker.imds, "gce": Asker.gce}
"""By dialect."""
