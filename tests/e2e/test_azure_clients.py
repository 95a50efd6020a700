"""azure-identity and @azure/identity, unmodified, with the metadata endpoint.

They have nothing but what `wi-agent env` prints, and of this test's own only the place of Node's modules.
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from bench.subjects import free_port
from tests.e2e.client import Client, started, taking
from tests.e2e.daemon import Daemon, configuration, identity, issuer
from tests.e2e.held import (
    MANY_SHORT_TRIES,
    ONE_LONG_TRY,
    HeldAnswers,
    answered,
    clients_of,
    connected,
    counted,
    refused,
    refused_since,
    running,
)
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


def azure(entra: Entra, url: str, dialect: str, name: str, client: str, **serve: Any) -> dict[str, Any]:
    """An identity of that dialect, whose tokens that Entra trusts."""
    one = identity(name, "1h", serve={"dialects": [dialect], **serve})
    one["provider"] = {
        "type": "azure", "tenantId": TENANT, "clientId": client, "endpoint": entra.url,
        "scopes": [f"{VAULT}/.default"], "resources": [STORAGE],
    }  # fmt: skip
    entra.trust[client] = Federated(issuer=url, subject=one["source"]["subject"], audience=AUDIENCE)
    return one


def chosen(entra: Entra) -> dict[str, Any]:
    """An identity for each dialect."""
    url = f"http://127.0.0.1:{free_port()}"
    serve = {"appservice": {}, "azure-imds": {"default": True}}
    return listening(url, *(azure(entra, url, dialect, name, CLIENTS[dialect], **serve[dialect]) for dialect, name in NAMES.items()))


def one_each(entra: Entra, dialect: str) -> dict[str, Any]:
    """An identity for each client in that dialect, named for its number."""
    url = f"http://127.0.0.1:{free_port()}"
    each = [
        azure(
            entra, url, dialect, f"client-{number}", str(UUID(int=number + 1)),
            **({"port": free_port()} if dialect == "azure-imds" else {}),
        )
        for number in range(len(KINDS) + 1)
    ]  # fmt: skip
    return listening(url, *each)


def listening(url: str, *identities: dict[str, Any]) -> dict[str, Any]:
    block = issuer(url=url, listen=[url.removeprefix("http://")], algorithm="RS256")
    return configuration(*identities, issuer=block, metadata={"listen": [f"127.0.0.1:{free_port()}"]})


async def python(daemon: Daemon, name: str, kind: str = "DefaultAzureCredential", flavour: str = "sync") -> Client:
    command = taking(daemon, name, sys.executable, "-c", PYTHON, kind, flavour, via="endpoint")
    return await started(daemon, command, TRAPS)


async def node(daemon: Daemon, name: str) -> Client:
    modules = await asyncio.to_thread(node_path)
    command = taking(daemon, name, "node", str(SCRIPTS / "azure.cjs"), "default", via="endpoint")
    return await started(daemon, command, {**TRAPS, "NODE_PATH": str(modules)})


async def everyone(daemon: Daemon, *dialects: str) -> list[Client]:
    """Each kind in each of these dialects or in all; Node's come last."""
    names = [NAMES[dialect] for dialect in dialects or NAMES]
    return list(
        await asyncio.gather(*(python(daemon, name, *kind) for name in names for kind in KINDS), *(node(daemon, name) for name in names))
    )


async def each_with_its_own(daemon: Daemon) -> dict[str, Client]:
    """Each kind, and Node's as the last, by the identity of `one_each` that it asks for."""
    names = [f"client-{number}" for number in range(len(KINDS) + 1)]
    makers = [*(python(daemon, name, *kind) for name, kind in zip(names, KINDS, strict=False)), node(daemon, names[-1])]
    return dict(zip(names, await asyncio.gather(*makers), strict=True))


def line(name: str) -> str:
    """What a client of `each_with_its_own` is asked."""
    return "0" if name == f"client-{len(KINDS)}" else ""


@pytest.mark.shows("appservice", "rotations", "restart")
@pytest.mark.shows("azure-imds", "rotations", "restart")
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
        while min(map(len, seen)) <= ROTATIONS:
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


@pytest.mark.shows("appservice", "first", "reads")
@pytest.mark.shows("azure-imds", "first", "reads")
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


@pytest.mark.shows("appservice", "late")
@pytest.mark.shows("azure-imds", "late")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("dialect", NAMES)
async def test_a_first_token_that_is_late_is_waited_for_within_the_first_request(daemon: Daemon, dialect: str) -> None:
    async with AsyncExitStack() as stack, Entra({}) as entra:
        answers = HeldAnswers(entra)
        await running(daemon, {**one_each(entra, dialect), "refresh": ONE_LONG_TRY})
        clients = await each_with_its_own(daemon)
        for client in clients.values():
            stack.push_async_callback(client.stop)
        for number, (name, client) in enumerate(clients.items(), start=1):
            before = clients_of(daemon)
            reading = asyncio.ensure_future(client.ask(line(name)))
            await connected(daemon, before)
            assert len(entra.granted) == number - 1
            answers.release(name)
            said = await reading
            assert entra.granted.get(said.get("token", "")) == VAULT, said
            assert await answered(daemon, dialect) == {"200": number}, "one request each, and none was answered with 503"
        assert len(entra.granted) == len(clients)
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_a_first_token_that_comes_in_time_is_waited_for_by_a_herd_and_is_one_request_of_ours(daemon: Daemon) -> None:
    async with Entra({}) as entra, aiohttp.ClientSession() as http:
        answers = HeldAnswers(entra)
        await running(daemon, {**chosen(entra), "refresh": ONE_LONG_TRY})
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
            for dialect, name in NAMES.items():
                before = clients_of(daemon)
                herd = asyncio.gather(*(one(dialect, resource) for _ in range(200)))
                await connected(daemon, before, 100 - len(before))  # aiohttp opens no more at a time, and uses again what is open
                answers.release(name)
                assert len(set(await herd)) == 1
                answers.hold(name)
        assert sorted(entra.granted.values()) == [STORAGE] * 2 + [VAULT] * 2
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("appservice", "503")
@pytest.mark.shows("azure-imds", "503")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("dialect", NAMES)
async def test_clients_sit_out_503_while_entra_is_away_and_an_agent_that_is_restarted(daemon: Daemon, dialect: str) -> None:
    async with AsyncExitStack() as stack, Entra({}) as entra:
        entra.lifetime = 30
        answers = HeldAnswers(entra)
        await running(daemon, {**one_each(entra, dialect), "refresh": MANY_SHORT_TRIES})
        clients = await each_with_its_own(daemon)
        for client in clients.values():
            stack.push_async_callback(client.stop)
        for name, client in clients.items():
            before = (await answered(daemon, dialect)).get("503", 0)
            asking = asyncio.ensure_future(client.ask(line(name)))
            await counted(daemon, dialect, "503", before + 1)
            answers.release(name)
            said = await asking
            assert entra.granted.get(said.get("token", "")) == VAULT, said
        await asyncio.to_thread(daemon.stop)
        granted = set(entra.granted)
        await asyncio.to_thread(daemon.start)
        for number, (name, client) in enumerate(clients.items()):
            said = await client.ask(line(name))
            assert said.get("token") in set(entra.granted) - (set() if number == PAUSING else granted), said
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("appservice", "absent")
@pytest.mark.shows("azure-imds", "absent")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize("language", ["python", "node"])
async def test_a_client_that_asks_first_is_served_by_an_agent_that_starts_a_second_later(
    daemon: Daemon, dialect: str, language: str
) -> None:
    async with Entra({}) as entra:
        await asyncio.to_thread(daemon.start, chosen(entra))  # once, so that there is an authorization to read
        await asyncio.to_thread(daemon.stop)
        granted = set(entra.granted)
        client = await (python if language == "python" else node)(daemon, NAMES[dialect])
        await asyncio.to_thread(daemon.prepare)
        before = refused()
        asked = asyncio.ensure_future(client.ask("0" if language == "node" else ""))
        await refused_since(before)
        daemon.go()
        said = await asked
        await client.stop()
        assert said.get("token") in set(entra.granted) - granted, said
        await asyncio.to_thread(daemon.stop)
