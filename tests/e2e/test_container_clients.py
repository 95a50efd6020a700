"""The SDK for JavaScript at the container endpoint: its whole chain, and its HTTP provider alone; with nothing but what `env` prints."""

import asyncio
import time
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.aws import NAME, served
from tests.e2e.client import Client, started, taking
from tests.e2e.daemon import Daemon
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.sts import Sts

ROTATIONS = 3
TRAPS = {
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/nowhere",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere",
    "AWS_ACCESS_KEY_ID": "AKIASTATIC",
    "AWS_SECRET_ACCESS_KEY": "static",
    "HTTP_PROXY": "http://127.0.0.1:9",
}
"""What would win over the endpoint, or keep a client from it."""


async def node(daemon: Daemon, provider: str) -> Client:
    modules = await asyncio.to_thread(node_path)
    command = taking(daemon, NAME, "node", str(SCRIPTS / "aws.cjs"), provider, via="endpoint")
    return await started(daemon, command, {**TRAPS, "NODE_PATH": str(modules)})


def chosen(sts: Sts, lifetime: str = "1h") -> dict[str, Any]:
    config = served(sts, free_port(), free_port(), lifetime)
    config["identities"][0]["serve"] = {"dialects": ["container"]}
    return config


@pytest.mark.timeout(200)
async def test_clients_that_were_made_before_go_on_across_rotations(daemon: Daemon) -> None:
    async with Sts({}) as sts:
        sts.lifetime, sts.generations = 30.0, 2
        await asyncio.to_thread(daemon.start, chosen(sts, "30s"))
        clients = {provider: await node(daemon, provider) for provider in ("chain", "http")}
        keys: dict[str, list[str]] = {provider: [] for provider in clients}
        last = time.monotonic() + 150
        while min(len(seen) for seen in keys.values()) <= ROTATIONS:
            for provider, client in clients.items():
                said = await client.ask()
                assert said.get("key") in sts.sessions, said
                if said["key"] not in keys[provider]:
                    keys[provider].append(said["key"])
            assert time.monotonic() < last, keys
            await asyncio.sleep(1.0)
        for client in clients.values():
            await client.stop()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("provider", ["chain", "http"])
async def test_three_reads_are_one_request_and_a_restart_is_not_noticed(daemon: Daemon, provider: str) -> None:
    async with Sts({}) as sts:
        await asyncio.to_thread(daemon.start, chosen(sts))
        client = await node(daemon, provider)
        assert [(await client.ask())["key"] for _ in range(3)] == list(sts.sessions) * 3
        metrics = await asyncio.to_thread(daemon.metrics)
        asked = metrics.get('wi_agent_metadata_requests_total{code="200",dialect="container"}')
        assert asked == (1 if provider == "chain" else 3), "the HTTP provider alone keeps nothing"
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        assert (await client.ask())["key"] in sts.sessions
        assert sts.actions["AssumeRoleWithWebIdentity"] == 1, "adopted"
        await client.stop()
