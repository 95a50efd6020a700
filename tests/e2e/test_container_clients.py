"""AWS's clients at the container endpoint, unmodified: boto3, the command line, the SDK for JavaScript as a whole and by HTTP alone.

They have nothing but what `env` prints, and of this test's own only the place of Node's modules, and for the command line,
which cannot say what it has taken but by using it, where STS is.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.aws import NAME, command_line, reader, served
from tests.e2e.client import Client, started, taking
from tests.e2e.daemon import Daemon
from tests.e2e.late import PATIENT, QUICK, answered, connected, hold, in_time, running
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.sts import Sts

ROTATIONS = 3
ARN = "arn:aws:sts::123456789012:assumed-role/s3-reader/"
TRAPS = {
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/nowhere",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere",
    "AWS_ACCESS_KEY_ID": "AKIASTATIC",
    "AWS_SECRET_ACCESS_KEY": "static",
    "HTTP_PROXY": "http://127.0.0.1:9",
}
"""What would win over the endpoint, or keep a client from it."""
WAYS = {"boto3": 1, "chain": 1, "http": 3}
"""Each client that lives long, and how many requests three reads take; the HTTP provider alone keeps nothing."""


async def made(daemon: Daemon, way: str) -> Client:
    if way == "boto3":
        return await reader(daemon, TRAPS)
    modules = await asyncio.to_thread(node_path)
    command = taking(daemon, NAME, "node", str(SCRIPTS / "aws.cjs"), way, via="endpoint")
    return await started(daemon, command, {**TRAPS, "NODE_PATH": str(modules)})


async def line(daemon: Daemon, sts: Sts) -> str:
    """What the command line says: its ARN, if it could sign."""
    return await command_line(daemon, "endpoint", {**TRAPS, "AWS_ENDPOINT_URL_STS": sts.url})


def chosen(sts: Sts, lifetime: str = "1h", **more: Any) -> dict[str, Any]:
    config = served(sts, free_port(), free_port(), lifetime)
    config["identities"][0]["serve"] = {"dialects": ["container"], **more}
    return config


@pytest.mark.timeout(200)
async def test_clients_that_were_made_before_go_on_across_rotations_and_a_restart(daemon: Daemon) -> None:
    """The SDK for JavaScript; for boto3 and the command line see `test_aws_clients`."""
    async with AsyncExitStack() as stack, Sts({}) as sts:
        sts.lifetime, sts.generations = 30.0, 2
        await asyncio.to_thread(daemon.start, chosen(sts, "30s"))
        clients = {provider: await made(daemon, provider) for provider in ("chain", "http")}
        for client in clients.values():
            stack.push_async_callback(client.stop)
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
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        assert {(await client.ask()).get("key") for client in clients.values()} <= set(sts.sessions)
        last = time.monotonic() + 10
        while await answered(daemon, "container") != {"200": len(clients)}:  # the chain asks beside the call
            assert time.monotonic() < last, "all asked this agent"
            await asyncio.sleep(0.05)
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_three_reads_are_one_request_and_a_restart_is_not_noticed(daemon: Daemon) -> None:
    async with AsyncExitStack() as stack, Sts({}) as sts:
        await asyncio.to_thread(daemon.start, chosen(sts))
        clients = dict(zip(WAYS, await asyncio.gather(*(made(daemon, way) for way in WAYS)), strict=True))
        asked = 0
        for way, client in clients.items():
            stack.push_async_callback(client.stop)
            assert [(await client.ask())["key"] for _ in range(3)] == list(sts.sessions) * 3
            asked += WAYS[way]
            assert await answered(daemon, "container") == {"200": asked}, way
        assert (await line(daemon, sts)).startswith(ARN)
        assert await answered(daemon, "container") == {"200": asked + 1}, "one of each process"
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        assert {(await client.ask())["key"] for client in clients.values()} == set(sts.sessions)
        assert (await line(daemon, sts)).startswith(ARN)
        assert sts.actions["AssumeRoleWithWebIdentity"] == 1, "adopted"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_a_first_session_that_is_late_is_waited_for_within_the_first_request(daemon: Daemon) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack, Sts({}) as sts:
            go = hold(sts)
            await running(daemon, {**chosen(sts), "refresh": PATIENT})
            clients = await asyncio.gather(*(made(daemon, way) for way in WAYS))
            for client in clients:
                stack.push_async_callback(client.stop)
            asking = asyncio.ensure_future(line(daemon, sts))
            await connected(daemon, 1)  # it takes the longest to start
            reads = [asyncio.ensure_future(client.ask()) for client in clients]
            await connected(daemon, 1 + len(clients))
            assert not sts.sessions
            go.set()
            assert [said.get("key") for said in await asyncio.gather(*reads)] == list(sts.sessions) * len(clients)
            assert (await asking).startswith(ARN), await asking
            assert await answered(daemon, "container") == {"200": 1 + len(clients)}, "one each, and nobody was sent away"
            assert sts.actions["AssumeRoleWithWebIdentity"] == 1
            await asyncio.to_thread(daemon.stop)

    await in_time(daemon, story)


@pytest.mark.timeout(120)
async def test_clients_sit_out_503_while_sts_is_away(daemon: Daemon) -> None:
    async with AsyncExitStack() as stack, Sts({}) as sts:
        sts.hanging = True
        await running(daemon, {**chosen(sts), "refresh": QUICK})
        clients = await asyncio.gather(*(made(daemon, way) for way in WAYS))
        for client in clients:
            stack.push_async_callback(client.stop)
        asking = asyncio.ensure_future(line(daemon, sts))
        await connected(daemon, 1)
        reads = [asyncio.ensure_future(client.ask()) for client in clients]
        last = time.monotonic() + 15
        while (await answered(daemon, "container")).get("503", 0) < 1 + len(clients):
            assert time.monotonic() < last
            await asyncio.sleep(0.05)
        sts.hanging = False
        assert {said.get("key", str(said)) for said in await asyncio.gather(*reads)} == set(sts.sessions), "each in the same call"
        assert (await asking).startswith(ARN), await asking
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_clients_that_ask_first_are_served_by_an_agent_that_starts_a_second_later(daemon: Daemon) -> None:
    """For boto3 see `test_aws_endpoint`."""
    async with Sts({}) as sts:
        config = chosen(sts, authorization="${WI_AUTHORIZATION}")
        daemon.configure(config)
        daemon.environment["WI_AUTHORIZATION"] = "6f1c9a0e-3c55-4a0b-9a52-5d1f6a1c7f10"
        for tries_left in (2, 1, 0):  # they try for two seconds, and a busy machine may need the second that is left to start a process
            clients = await asyncio.gather(*(made(daemon, way) for way in ("chain", "http")))
            asking = [asyncio.ensure_future(client.ask()) for client in clients]
            typed = asyncio.ensure_future(line(daemon, sts))
            await asyncio.sleep(1.0)
            assert not any(one.done() for one in asking)
            await running(daemon, config)
            reads, arn = await asyncio.gather(*asking), await typed
            for client in clients:
                await client.stop()
            if (all("key" in said for said in reads) and arn.startswith(ARN)) or not tries_left:
                break
            await asyncio.to_thread(daemon.stop)
        assert [said.get("key", said) for said in reads] == list(sts.sessions) * 2
        assert arn.startswith(ARN), arn
        await asyncio.to_thread(daemon.stop)
