"""One agent that serves every dialect, two identities in each, beside servers that stand for all four clouds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.subjects import free_port
from tests.e2e.daemon import Daemon, configuration, identity, issuer, until
from tests.servers.alibaba import AlibabaSts
from tests.servers.alibaba import Trust as AlibabaTrust
from tests.servers.alibaba_cloud import PROVIDER
from tests.servers.entra import AUDIENCE as ENTRAS
from tests.servers.entra import TENANT, Entra, Federated
from tests.servers.gcp import AUDIENCE, PATH, Gcp, Pool
from tests.servers.sts import Sts, Trust

VAULT = "https://vault.azure.net"
CLIENTS = {"azure": "7d1a0c5e-8f0c-4f7a-9a55-0d8c3f1b2a90", "azure-other": "0b9d6f0e-5a2c-4c6d-8a8e-6f2f7a1f2c11"}
CLOUDS = ("aws", "gcp", "azure", "alibaba")


def role(name: str) -> str:
    """Of AWS."""
    return f"arn:aws:iam::123456789012:role/{name}"


def ram_role(name: str) -> str:
    """Of Alibaba Cloud."""
    return f"acs:ram::1234567890123456:role/{name}"


@dataclass
class Everything:
    """What a test needs of it."""

    daemon: Daemon
    sts: Sts
    gcp: Gcp
    entra: Entra
    alibaba: AlibabaSts
    port: int = 0
    ports: dict[str, int] = field(default_factory=dict)
    """Of each cloud's other identity, on which the well-known paths are its own."""
    authorizations: dict[str, str] = field(default_factory=dict)
    """By identity."""

    @property
    def secrets(self) -> set[str]:
        """All that was ever granted, to whomever."""
        found = {session.secret for session in self.sts.sessions.values()} | {session.token for session in self.sts.sessions.values()}
        found |= {session.secret for session in self.alibaba.sessions.values()} | {
            session.token for session in self.alibaba.sessions.values()
        }
        return found | set(self.gcp.sessions) | set(self.entra.granted)

    def asked(self) -> int:
        """Exchanges, at all clouds."""
        return len(self.sts.sessions) + len(self.gcp.sessions) + len(self.entra.granted) + len(self.alibaba.sessions)

    def ways(self, name: str = "") -> Mapping[str, tuple[str, dict[str, str]]]:
        """Target and headers of each dialect's question for a credential, but for session tokens; `name`: a suffix of the identity."""
        own = {cloud: self.authorizations.get(f"{cloud}{name}", "") for cloud in CLOUDS}
        return {
            "container": (f"/aws/aws{name}/credentials", {"Authorization": own["aws"]}),
            "imds": ("/latest/meta-data/iam/security-credentials/aws", {}),
            "gce": ("/computeMetadata/v1/instance/service-accounts/default/token", {"Metadata-Flavor": "Google"}),
            "appservice": (
                f"/azure/azure{name}/token?api-version=2019-08-01&resource={VAULT}",
                {"X-IDENTITY-HEADER": own["azure"]},
            ),
            "azure-imds": (f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={VAULT}", {"Metadata": "true"}),
            "uri": (f"/alibaba/alibaba{name}/{own['alibaba']}/credentials", {}),
            "ecs": ("/latest/meta-data/ram/security-credentials/alibaba", {}),
        }


def _chosen(one: Everything, port: int, metadata: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}"
    identities = []
    for suffix in ("", "-other"):
        aws, gcp, azure, alibaba = (
            identity(
                f"{cloud}{suffix}", "1h", serve={"dialects": dialects, **({"port": one.ports[cloud]} if suffix else {"default": True})}
            )
            for cloud, dialects in zip(CLOUDS, (["container", "imds"], ["gce"], ["appservice", "azure-imds"], ["uri", "ecs"]), strict=True)
        )
        aws["provider"] = {"type": "aws", "roleArn": role(aws["name"]), "region": "eu-west-1", "endpoint": one.sts.url}
        gcp["provider"] = {"type": "gcp", "workloadIdentityProvider": PATH, "endpoint": one.gcp.url}
        azure["provider"] = {
            "type": "azure", "tenantId": TENANT, "clientId": CLIENTS[azure["name"]], "endpoint": one.entra.url,
            "scopes": [f"{VAULT}/.default"],
        }  # fmt: skip
        alibaba["provider"] = {
            "type": "alibaba", "roleArn": ram_role(alibaba["name"]), "oidcProviderArn": PROVIDER, "endpoint": one.alibaba.url,
        }  # fmt: skip
        one.sts.trust[role(aws["name"])] = Trust(issuer=url, subject=aws["source"]["subject"])
        one.entra.trust[CLIENTS[azure["name"]]] = Federated(issuer=url, subject=azure["source"]["subject"], audience=ENTRAS)
        one.alibaba.trust[ram_role(alibaba["name"])] = AlibabaTrust(issuer=url, subject=alibaba["source"]["subject"], provider=PROVIDER)
        identities += [aws, gcp, azure, alibaba]
    one.gcp.pools = {f"//iam.googleapis.com/{PATH}": Pool(url, (AUDIENCE,))}
    block = issuer(url=url, listen=[f"127.0.0.1:{port}"], algorithm="RS256")
    return configuration(*identities, issuer=block, metadata={"listen": [f"127.0.0.1:{metadata}"]}, refresh={"timeout": "60s"})


@asynccontextmanager
async def everything(
    daemon: Daemon, *, wait: bool = True, first: Callable[["Everything"], None] = lambda _: None
) -> AsyncIterator[Everything]:
    """Up while entered; `wait`: until each identity is delivered. `first` happens before the agent starts."""
    async with Sts({}) as sts, Gcp({}) as gcp, Entra({}) as entra, AlibabaSts({}) as alibaba:
        one = Everything(daemon, sts, gcp, entra, alibaba, free_port(), {cloud: free_port() for cloud in CLOUDS})
        first(one)
        await asyncio.to_thread(daemon.start, _chosen(one, free_port(), one.port), wait=wait)
        await asyncio.to_thread(until, lambda: daemon.log("agent.started"))
        names = [path.parent.name for path in (daemon.folder / "identities").glob("*/authorization")]
        one.authorizations = {name: (daemon.folder / "identities" / name / "authorization").read_text() for name in names}
        try:
            yield one
        finally:
            await asyncio.to_thread(daemon.kill)
