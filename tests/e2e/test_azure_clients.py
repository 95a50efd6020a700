"""azure-identity and @azure/identity, unmodified, with the metadata endpoint.

They have nothing but what `wi-agent env` prints, and of this test's own only the place of Node's modules.
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from bench.subjects import free_port
from tests.e2e.client import Client, started, taking
from tests.e2e.daemon import Daemon, configuration, identity, issuer, until
from tests.e2e.late import PATIENT, QUICK, answered, connected, hold, in_time, running
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.entra import AUDIENCE, CLIENT, TENANT, Entra, Federated

NAMES = {"appservice": "vault-reader", "azure-imds": "vault-reader-of-the-pod"}
CLIENTS = {"appservice": CLIENT, "azure-imds": "0b9d6f0e-5a2c-4c6d-8a8e-6f2f7a1f2c11"}
VAULT, STORAGE = "https://vault.azure.net", "https://storage.azure.com"
ROTATIONS = 3
TRAPS = {
    "AZURE_CLIENT_SECRET": "trapped",
    "AZURE_CLIENT_ID": "00000000-0000-0000-0000-000000000000",
    "AZURE_TENANT_ID": TENANT,
    "AZURE_FEDERATED_TOKEN_FILE": "/nowhere",
    "AZURE_TOKEN_CREDENTIALS": "dev",
    "IMDS_ENDPOINT": "http://127.0.0.1:9",
    "MSI_ENDPOINT": "http://127.0.0.1:9",
    "MSI_SECRET": "trapped",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
}
"""What would win over the endpoint, or keep a client from it."""
PYTHON = """
import asyncio, json, sys
kind, flavour = sys.argv[1:]
if flavour == "aio":
    from azure.identity import aio as module
else:
    import azure.identity as module
credential = getattr(module, kind)()
async def main():
    print("{}", flush=True)
    for line in sys.stdin:
        try:
            token = credential.get_token(line.strip() or "https://vault.azure.net/.default")
            token = await token if flavour == "aio" else token
            said = {"token": token.token, "expires": token.expires_on}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)
    if flavour == "aio":
        await credential.close()
asyncio.run(main())
"""
KINDS = [("DefaultAzureCredential", "sync"), ("DefaultAzureCredential", "aio"), ("ManagedIdentityCredential", "sync")]
PAUSING = 1
"""The one of them that asks once in 30 s at most while what it has is valid."""


def chosen(entra: Entra) -> dict[str, Any]:
    """An identity for each dialect, whose tokens that Entra trusts."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    both = []
    for dialect, name in NAMES.items():
        one = identity(name, "1h", serve={"dialects": [dialect], **({"default": True} if dialect == "azure-imds" else {})})
        one["provider"] = {
            "type": "azure", "tenantId": TENANT, "clientId": CLIENTS[dialect], "endpoint": entra.url,
            "scopes": [f"{VAULT}/.default"], "resources": [STORAGE],
        }  # fmt: skip
        entra.trust[CLIENTS[dialect]] = Federated(issuer=url, subject=one["source"]["subject"], audience=AUDIENCE)
        both.append(one)
    block = issuer(url=url, listen=[f"127.0.0.1:{port}"], algorithm="RS256")
    return configuration(*both, issuer=block, metadata={"listen": [f"127.0.0.1:{free_port()}"]})


async def python(daemon: Daemon, dialect: str, kind: str = "DefaultAzureCredential", flavour: str = "sync") -> Client:
    command = taking(daemon, NAMES[dialect], sys.executable, "-c", PYTHON, kind, flavour, via="endpoint")
    return await started(daemon, command, TRAPS)


async def node(daemon: Daemon, dialect: str) -> Client:
    modules = await asyncio.to_thread(node_path)
    command = taking(daemon, NAMES[dialect], "node", str(SCRIPTS / "azure.cjs"), "default", via="endpoint")
    return await started(daemon, command, {**TRAPS, "NODE_PATH": str(modules)})


async def everyone(daemon: Daemon, *dialects: str) -> list[Client]:
    """Each kind in each of these dialects or in all; Node's come last."""
    chosen = dialects or tuple(NAMES)
    makers = [python(daemon, dialect, *kind) for dialect in chosen for kind in KINDS] + [node(daemon, dialect) for dialect in chosen]
    return list(await asyncio.gather(*makers))


@pytest.mark.timeout(240)
async def test_clients_that_were_made_before_go_on_across_rotations_and_a_restart(daemon: Daemon) -> None:
    """They ask for each token that has less than five minutes left, so every question is answered with what there is then."""
    async with AsyncExitStack() as stack, Entra({}) as entra:
        entra.lifetime = 30
        await asyncio.to_thread(daemon.start, chosen(entra))
        clients = await everyone(daemon)
        for client in clients:
            stack.push_async_callback(client.stop)
        seen: list[set[str]] = [set() for _ in clients]
        last = time.monotonic() + 120
        while min(map(len, seen)) <= ROTATIONS:
            assert time.monotonic() < last, [len(tokens) for tokens in seen]
            for client, tokens in zip(clients, seen, strict=True):
                said = await client.ask("0") if client in clients[-2:] else await client.ask()
                assert entra.granted.get(said.get("token", "")) == VAULT, said
                assert said.get("expires", time.time() + 1) > time.time(), said
                tokens.add(said["token"])
            await asyncio.sleep(1.0)
        assert len(entra.granted) < 2 * (ROTATIONS + 4), "the agent asks, and not the clients"
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        for client, tokens in zip(clients, seen, strict=True):
            said = await client.ask("0") if client in clients[-2:] else await client.ask()
            pausing = client in (clients[PAUSING], clients[len(KINDS) + PAUSING])
            assert said.get("token") in set(entra.granted) - (set() if pausing else tokens), said
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("dialect", NAMES)
async def test_three_reads_are_one_request_and_each_resource_is_asked_for_once(daemon: Daemon, dialect: str) -> None:
    async with Entra({}) as entra:
        await asyncio.to_thread(daemon.start, chosen(entra))
        ways = await everyone(daemon, dialect)
        for number, client in enumerate(ways, start=1):
            tokens = {(await client.ask("0" if number == len(ways) else "")).get("token") for _ in range(3)}
            assert len(tokens & set(entra.granted)) == len(tokens) == 1
            assert await answered(daemon, dialect) == {"200": number}
        for client in ways[:-1]:
            said = await client.ask(f"{STORAGE}/.default")
            assert entra.granted[said["token"]] == STORAGE
            assert "error" in await client.ask("https://graph.microsoft.com/.default"), "not named in the configuration"
            await client.stop()
        assert sorted(entra.granted.values()) == [STORAGE, VAULT, VAULT]
        await ways[-1].stop()
        text = daemon.text()
        assert not any(token in text for token in entra.granted)
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_a_first_token_that_is_late_is_waited_for_within_the_first_request(daemon: Daemon) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack, Entra({}) as entra:
            go = hold(entra)
            await running(daemon, {**chosen(entra), "refresh": PATIENT})
            clients = await everyone(daemon)
            for client in clients:
                stack.push_async_callback(client.stop)
            reads = [asyncio.ensure_future(client.ask("0" if client in clients[-2:] else "")) for client in clients]
            await connected(daemon, len(clients))
            assert not entra.granted
            go.set()
            for said in await asyncio.gather(*reads):
                assert entra.granted.get(said.get("token", "")) == VAULT, said
            for dialect in NAMES:
                assert await answered(daemon, dialect) == {"200": len(clients) / 2}, "one each, and nobody was sent away"
            assert len(entra.granted) == len(NAMES)
            await asyncio.to_thread(daemon.stop)

    await in_time(daemon, story)


@pytest.mark.timeout(120)
async def test_a_first_token_that_comes_in_time_is_waited_for_by_a_herd_and_is_one_request_of_ours(daemon: Daemon) -> None:
    async with Entra({}) as entra, aiohttp.ClientSession() as http:
        entra.delay = 1.5
        await running(daemon, chosen(entra))
        base = f"http://{daemon.address('metadata')}"
        authorization = daemon.folder / "identities" / NAMES["appservice"] / "authorization"
        asked = {
            "appservice": (f"{base}/azure/vault-reader/token?api-version=2019-08-01", {"X-IDENTITY-HEADER": authorization.read_text()}),
            "azure-imds": (f"{base}/metadata/identity/oauth2/token?api-version=2018-02-01", {"Metadata": "true"}),
        }

        async def one(dialect: str, resource: str) -> str:
            url, headers = asked[dialect]
            async with http.get(f"{url}&resource={resource}", headers=headers) as response:
                body = await response.json()
                assert response.status == 200, body
                return str(body["access_token"])

        for resource in (VAULT, STORAGE):
            for dialect in NAMES:
                assert len(set(await asyncio.gather(*(one(dialect, resource) for _ in range(200))))) == 1
        assert sorted(entra.granted.values()) == [STORAGE] * 2 + [VAULT] * 2
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("dialect", NAMES)
async def test_clients_sit_out_503_while_entra_is_away_and_an_agent_that_is_restarted(daemon: Daemon, dialect: str) -> None:
    async with AsyncExitStack() as stack, Entra({}) as entra:
        entra.hanging, entra.lifetime = True, 30
        await running(daemon, {**chosen(entra), "refresh": QUICK})
        clients = await everyone(daemon, dialect)
        for client in clients:
            stack.push_async_callback(client.stop)
        asking = [asyncio.ensure_future(client.ask("0" if client is clients[-1] else "")) for client in clients]
        last = time.monotonic() + 10
        while (await answered(daemon, dialect)).get("503", 0) < len(clients):
            assert time.monotonic() < last
            await asyncio.sleep(0.05)
        entra.hanging = False
        for said in await asyncio.gather(*asking):
            assert entra.granted.get(said.get("token", "")) == VAULT, said
        await asyncio.to_thread(daemon.stop)
        before = set(entra.granted)
        await asyncio.to_thread(daemon.start)
        for client in clients:
            said = await client.ask("0" if client is clients[-1] else "")
            assert said.get("token") in set(entra.granted) - (set() if client is clients[PAUSING] else before), said
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize("language", ["python", "node"])
async def test_a_client_that_asks_first_is_served_by_an_agent_that_starts_a_second_later(
    daemon: Daemon, dialect: str, language: str
) -> None:
    async with Entra({}) as entra:
        config = chosen(entra)
        await asyncio.to_thread(daemon.start, config)  # once, so that there is an authorization to read
        await asyncio.to_thread(daemon.stop)
        before = set(entra.granted)
        for tries_left in (2, 1, 0):  # a busy machine may need longer to start a process than a client is patient
            client = await (python if language == "python" else node)(daemon, dialect)
            asked = asyncio.ensure_future(client.ask("0" if language == "node" else ""))
            await asyncio.sleep(1.0)
            await asyncio.to_thread(daemon.start, wait=False)
            said = await asked
            await client.stop()
            if "token" in said or not tries_left:
                break
            await asyncio.to_thread(daemon.kill)
        assert said.get("token") in set(entra.granted) - before, said
        await asyncio.to_thread(until, lambda: daemon.log("agent.started"))
        await asyncio.to_thread(daemon.stop)
