"""AWS's clients at the container endpoint, unmodified: boto3, the command line, the SDK for JavaScript as a whole and by HTTP alone.

They have nothing but what `env` prints, and of this test's own only the place of Node's modules, and for the command line,
which cannot say what it has taken but by using it, where STS is.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.aws import NAME, command_line, reader, role, served
from tests.e2e.client import Client, started, taking
from tests.e2e.daemon import Daemon
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
EACH = (*WAYS, "command-line")
"""Identities that are named for their only client."""


async def made(daemon: Daemon, way: str, name: str = NAME) -> Client:
    if way == "boto3":
        return await reader(daemon, TRAPS, name)
    modules = await asyncio.to_thread(node_path)
    command = taking(daemon, name, "node", str(SCRIPTS / "aws.cjs"), way, via="endpoint")
    return await started(daemon, command, {**TRAPS, "NODE_PATH": str(modules)})


async def line(daemon: Daemon, sts: Sts, name: str = NAME) -> str:
    """What the command line says: its ARN, if it could sign."""
    return await command_line(daemon, "endpoint", {**TRAPS, "AWS_ENDPOINT_URL_STS": sts.url}, name)


def chosen(sts: Sts, lifetime: str = "1h", names: Sequence[str] = (NAME,), **more: Any) -> dict[str, Any]:
    serve = {"dialects": ["container"], **more}
    return served(sts, free_port(), free_port(), lifetime, names=names, serve=serve)


def judge(sts: Sts, name: str, said: Any) -> None:
    """The client of that identity signs with its session."""
    if isinstance(said, str):
        assert said.startswith(f"arn:aws:sts::123456789012:assumed-role/{name}/"), said
    else:
        assert [said.get("key", said)] == [key for key, session in sts.sessions.items() if session.role == role(name)]


@pytest.mark.shows("container", "rotations", "restart", clients=("@aws-sdk/credential-provider-node", "@aws-sdk/credential-provider-http"))
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
        while min(len(seen) for seen in keys.values()) <= ROTATIONS:
            for provider, client in clients.items():
                said = await client.ask()
                assert said.get("key") in sts.sessions, said
                if said["key"] not in keys[provider]:
                    keys[provider].append(said["key"])
            await asyncio.sleep(1.0)
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        assert {(await client.ask()).get("key") for client in clients.values()} <= set(sts.sessions)
        await counted(daemon, "container", "200", len(clients))  # the chain asks beside the call
        assert await answered(daemon, "container") == {"200": len(clients)}, "all asked this agent"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("container", "first", "reads")
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


@pytest.mark.shows("container", "late")
@pytest.mark.timeout(120)
async def test_a_first_session_that_is_late_is_waited_for_within_the_first_request(daemon: Daemon) -> None:
    async with AsyncExitStack() as stack, Sts({}) as sts:
        answers = HeldAnswers(sts)
        await running(daemon, {**chosen(sts, names=EACH), "refresh": ONE_LONG_TRY})
        clients = dict(zip(WAYS, await asyncio.gather(*(made(daemon, way, way) for way in WAYS)), strict=True))
        for client in clients.values():
            stack.push_async_callback(client.stop)
        for number, name in enumerate(EACH, start=1):
            before = clients_of(daemon)
            asking = asyncio.ensure_future(clients[name].ask() if name in WAYS else line(daemon, sts, name))
            await connected(daemon, before)
            assert len(sts.sessions) == number - 1
            answers.release(name)
            judge(sts, name, await asking)
            assert await answered(daemon, "container") == {"200": number}, "one request each, and none was answered with 503"
        assert sts.actions["AssumeRoleWithWebIdentity"] == len(EACH)
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("container", "503")
@pytest.mark.timeout(120)
async def test_clients_sit_out_503_while_sts_is_away(daemon: Daemon) -> None:
    async with AsyncExitStack() as stack, Sts({}) as sts:
        answers = HeldAnswers(sts)
        await running(daemon, {**chosen(sts, names=EACH), "refresh": MANY_SHORT_TRIES})
        clients = dict(zip(WAYS, await asyncio.gather(*(made(daemon, way, way) for way in WAYS)), strict=True))
        for client in clients.values():
            stack.push_async_callback(client.stop)
        for name in EACH:
            before = (await answered(daemon, "container")).get("503", 0)
            asking = asyncio.ensure_future(clients[name].ask() if name in WAYS else line(daemon, sts, name))
            await counted(daemon, "container", "503", before + 1)
            answers.release(name)
            judge(sts, name, await asking)
        await asyncio.to_thread(daemon.stop)


@pytest.mark.alone  # they try for two seconds
@pytest.mark.shows(
    "container", "absent", clients=("aws command line", "@aws-sdk/credential-provider-node", "@aws-sdk/credential-provider-http")
)
@pytest.mark.timeout(120)
async def test_clients_that_ask_first_are_served_by_an_agent_that_starts_a_second_later(daemon: Daemon) -> None:
    """For boto3 see `test_aws_endpoint`. They try for two seconds."""
    async with AsyncExitStack() as stack, Sts({}) as sts:
        daemon.configure(chosen(sts, authorization="${WI_AUTHORIZATION}"))
        daemon.environment["WI_AUTHORIZATION"] = "6f1c9a0e-3c55-4a0b-9a52-5d1f6a1c7f10"
        clients = await asyncio.gather(*(made(daemon, way) for way in ("chain", "http")))
        for client in clients:
            stack.push_async_callback(client.stop)
        for ask in (*(client.ask for client in clients), lambda: line(daemon, sts)):
            await asyncio.to_thread(daemon.prepare)
            before = refused()
            asking: asyncio.Future[Any] = asyncio.ensure_future(ask())
            await refused_since(before)
            assert not asking.done()
            daemon.go()
            judge(sts, NAME, await asking)
            await asyncio.to_thread(daemon.stop)
        assert sts.actions["AssumeRoleWithWebIdentity"] == 1, "adopted after the first"
