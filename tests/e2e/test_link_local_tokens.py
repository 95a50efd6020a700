"""In a network of its own with the clouds' addresses on loopback: Azure's and Alibaba Cloud's SDKs that are told nothing find the agent."""

import json
import sys
from typing import Any

import pytest

from tests.e2e.daemon import COMMAND, Daemon, configuration, identity
from tests.e2e.network import Network, beside, delivered, namespaced, said
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.alibaba_cloud import PROVIDER, ROLE
from tests.servers.entra import CLIENT, TENANT

SERVERS = """
import asyncio, json, sys
from tests.servers.alibaba import AlibabaSts, Trust
from tests.servers.alibaba_cloud import PROVIDER, ROLE
from tests.servers.entra import CLIENT, Entra, Federated

async def main() -> None:
    issuer, subjects = sys.argv[1], json.loads(sys.argv[2])
    async with AlibabaSts({ROLE: Trust(issuer=issuer, subject=subjects["alibaba"], provider=PROVIDER)}) as sts:
        async with Entra({CLIENT: Federated(issuer=issuer, subject=subjects["azure"])}) as entra:
            print(json.dumps({"sts": sts.url, "entra": entra.url}), flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""
ISSUER = "http://127.0.0.1:9482"
LISTEN = ["169.254.169.254:80", "100.100.100.200:80", "127.0.0.1:9481"]
AZURE = """
from azure.identity import DefaultAzureCredential
print(DefaultAzureCredential(exclude_cli_credential=True).get_token("https://vault.azure.net/.default").token)
"""
ALIBABA = """
from alibabacloud_credentials.client import Client
client = Client()
print(*(client.get_credential().access_key_id for _ in range(3)))
"""


def _chosen(urls: dict[str, str]) -> dict[str, Any]:
    azure = identity("azure", serve={"dialects": ["azure-imds"], "default": True})
    azure["provider"] = {
        "type": "azure", "tenantId": TENANT, "clientId": CLIENT, "endpoint": urls["entra"], "scopes": ["https://vault.azure.net/.default"],
    }  # fmt: skip
    alibaba = identity("alibaba", serve={"dialects": ["ecs"], "default": True})
    alibaba["provider"] = {"type": "alibaba", "roleArn": ROLE, "oidcProviderArn": PROVIDER, "endpoint": urls["sts"]}
    found = configuration(azure, alibaba, metadata={"listen": LISTEN})
    found["issuer"] |= {"listen": ["127.0.0.1:9482"], "algorithm": "RS256"}
    return found


@pytest.mark.timeout(180)
def test_sdks_that_are_told_nothing_find_the_agent_at_the_clouds_own_addresses(daemon: Daemon) -> None:
    if reason := namespaced():
        pytest.skip(reason)
    modules = str(node_path())
    subjects = {cloud: f"system:serviceaccount:demo:{cloud}" for cloud in ("azure", "alibaba")}
    with beside(daemon, SERVERS, ISSUER, json.dumps(subjects)) as (network, urls):
        delivered(daemon, network, _chosen(urls))
        assert said(daemon, network, sys.executable, "-c", AZURE)
        node = said(daemon, network, "node", str(SCRIPTS / "azure.cjs"), "default", lines="0\n", NODE_PATH=modules)
        assert "token" in json.loads(node.splitlines()[-1]), node
        assert _answered(daemon, network, "azure-imds") == {"200": 2, "400": 2}, "each asks first whether anybody is there"
        ids = said(daemon, network, sys.executable, "-c", ALIBABA).split()
        assert len(set(ids)) == 1
        assert ids[0].startswith("STS."), ids
        assert _answered(daemon, network, "ecs") == {"200": 4}, "a token, the role, a token, the session: once for three reads"
        node = said(daemon, network, "node", str(SCRIPTS / "alibaba.cjs"), "nowhere.example", "9", lines="\n", NODE_PATH=modules)
        assert json.loads(node.splitlines()[-1]).get("id") == ids[0], node
        told = said(daemon, network, *COMMAND, "-c", str(daemon.file), "env", "alibaba")
        shell = f"{told}\nexec {sys.executable} -c '{ALIBABA}'"
        assert said(daemon, network, "/bin/sh", "-c", shell).split() == ids
        assert _answered(daemon, network, "ecs")["200"] == 4 + 4 + 2, "who is told the role need not ask"


def _answered(daemon: Daemon, network: Network, dialect: str) -> dict[str, int]:
    """Requests by status."""
    url = f"http://{daemon.address('admin')}/metrics"
    text = said(daemon, network, sys.executable, "-c", f"import urllib.request; print(urllib.request.urlopen('{url}').read().decode())")
    lines = [line for line in text.splitlines() if line.startswith("wi_agent_metadata_requests_total{") and f'dialect="{dialect}"' in line]
    return {line.split('code="')[1][:3]: int(float(line.rsplit(" ", 1)[1])) for line in lines}
