"""Each dialect's cloud: who grants, to whom, and what a test breaks there."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agent.dialects import DIALECTS
from tests.doctor.scene import Scene
from tests.servers import alibaba, alibaba_cloud, entra, gcp
from tests.servers.cloud import ROLE
from tests.servers.issuer import AUDIENCE, SUBJECT
from tests.servers.sts import Trust


@dataclass
class Realm:
    """A cloud that trusts the test's issuer."""

    dialect: str
    provider: dict[str, Any]
    audience: str
    server: Any
    trust: dict[str, Any]
    """Whom it trusts; emptied, nobody."""

    def secrets(self) -> Iterator[str]:
        """What it has granted."""
        granted = self.server.granted if hasattr(self.server, "granted") else self.server.sessions
        for key, session in granted.items():
            yield from (getattr(session, name) for name in ("secret", "token") if hasattr(session, name))
            if len(key) > 32:  # an access token; an access key's name is shorter, and no secret
                yield key

    def serve(self, **more: Any) -> dict[str, Any]:
        """`serve` of an identity in this dialect, at the endpoint's own root where no path names it."""
        return {"dialects": [self.dialect], **({} if DIALECTS[self.dialect].named else {"default": True}), **more}


@asynccontextmanager
async def realm(stage: Scene, dialect: str) -> AsyncIterator[Realm]:
    """Up while entered; the stage's identity is of this cloud, and its token for it."""
    url = stage.cloud.issuer.url
    match DIALECTS[dialect].provider:
        case "gcp":
            trust: dict[str, Any] = {gcp.AUDIENCE.removeprefix("https:"): gcp.Pool(url)}
            async with gcp.Gcp(trust) as server:
                provider = {"type": "gcp", "workloadIdentityProvider": gcp.PATH, "endpoint": server.url}
                yield _settled(stage, Realm(dialect, provider, gcp.AUDIENCE, server, server.pools))
        case "azure":
            async with entra.Entra({entra.CLIENT: entra.Federated(issuer=url, subject=SUBJECT)}) as server:
                provider = {
                    "type": "azure",
                    "tenantId": entra.TENANT,
                    "clientId": entra.CLIENT,
                    "scopes": ["https://vault.azure.net/.default"],
                    "endpoint": server.url,
                }
                yield _settled(stage, Realm(dialect, provider, entra.AUDIENCE, server, server.trust))
        case "alibaba":
            trusted = alibaba.Trust(issuer=url, subject=SUBJECT, provider=alibaba_cloud.PROVIDER)
            async with alibaba.AlibabaSts({alibaba_cloud.ROLE: trusted}) as server:
                provider = {
                    "type": "alibaba",
                    "roleArn": alibaba_cloud.ROLE,
                    "oidcProviderArn": alibaba_cloud.PROVIDER,
                    "region": "eu-central-1",
                    "endpoint": server.url,
                }
                yield _settled(stage, Realm(dialect, provider, alibaba_cloud.AUDIENCE, server, server.trust))
        case _:
            stage.cloud.sts.trust[ROLE] = Trust(issuer=url, subject=SUBJECT)
            provider = {"type": "aws", "roleArn": ROLE, "region": "eu-west-1", "endpoint": stage.cloud.sts.url}
            yield _settled(stage, Realm(dialect, provider, AUDIENCE, stage.cloud.sts, stage.cloud.sts.trust))


def _settled(stage: Scene, made: Realm) -> Realm:
    stage.granted = made.secrets
    stage.ports["sts"] = made.server.port
    stage.present(aud=made.audience)
    return made
