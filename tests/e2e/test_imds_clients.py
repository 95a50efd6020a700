"""boto3, the aws command line and the SDK for JavaScript with instance metadata, unmodified.

They have nothing but what `env` prints, and of this test's own only the place of Node's modules, and for who says what it has
taken by using it, where STS is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.aws import NAME, Boto3, command_line, reader, role, served
from tests.e2e.client import Client, started, taking
from tests.e2e.daemon import Daemon
from tests.e2e.held import MANY_SHORT_TRIES, ONE_LONG_TRY, HeldAnswers, answered, counted, running
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.sts import Sts

ROTATIONS = 3
TRAPS = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE": "IPv6",
    "AWS_ROLE_ARN": "arn:aws:iam::1:role/x",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9/",
    "AWS_ACCESS_KEY_ID": "AKIASTATIC",
    "AWS_SECRET_ACCESS_KEY": "static",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
}
"""What would win over the endpoint, or keep a client from it."""
ASSUMED = "arn:aws:sts::123456789012:assumed-role/"
ARN = f"{ASSUMED}{NAME}/"


def chosen(sts: Sts, lifetime: str = "1h", **serve: Any) -> dict[str, Any]:
    return served(sts, free_port(), free_port(), lifetime, serve={"dialects": ["imds"], **serve})


async def node(daemon: Daemon, name: str = NAME) -> Client:
    modules = await asyncio.to_thread(node_path)
    return await started(
        daemon, taking(daemon, name, "node", str(SCRIPTS / "aws.cjs"), via="endpoint"), {**TRAPS, "NODE_PATH": str(modules)}
    )


async def line(daemon: Daemon, sts: Sts, name: str = NAME) -> str:
    """What the command line says: its ARN, if it could sign."""
    return await command_line(daemon, "endpoint", {**TRAPS, "AWS_ENDPOINT_URL_STS": sts.url}, name)


@pytest.mark.shows("imds", "rotations")
@pytest.mark.shows("imds", "restart", clients=("aws command line", "@aws-sdk/credential-provider-node"))
@pytest.mark.timeout(240)
async def test_clients_go_on_across_rotations_and_a_restart(daemon: Daemon) -> None:
    """Not a boto3 made before: it believes that what has 30 s left has 12 to 20 minutes, which AWS's 15 min at least never come to."""
    async with Sts({}) as sts:
        sts.lifetime, sts.generations = 30.0, 2
        await asyncio.to_thread(daemon.start, chosen(sts, "30s", port=free_port()))
        more, directory = {**TRAPS, "AWS_ENDPOINT_URL_STS": sts.url}, daemon.folder / "identities" / NAME
        client = await node(daemon)
        keys: list[str] = []
        while len(keys) <= ROTATIONS:
            said = await client.ask()
            session = (directory / "credentials").read_text()
            if said.get("key") and said["key"] not in keys:
                keys.append(said["key"])
                assert said["account"] == "123456789012"
                assert (await line(daemon, sts)).startswith(ARN)
                fresh = await Boto3(daemon, "endpoint", more).start()
                assert "arn" in await fresh.ask(), fresh.said
                await fresh.stop()
            assert said.get("key") in sts.sessions, (said, session)
            await asyncio.sleep(1.0)
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        while (await answered(daemon, "imds")).get("200", 0) < 3:  # it asks beside the call, which it answers with what it has
            assert (await client.ask()).get("key") in sts.sessions
        assert (await line(daemon, sts)).startswith(ARN)
        await client.stop()
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("imds", "first", "reads")
@pytest.mark.shows("imds", "restart", clients=("boto3",))
@pytest.mark.timeout(120)
@pytest.mark.parametrize("where", [{}, {"default": True}, {"port": True}], ids=["path", "default", "port"])
async def test_three_reads_take_the_three_requests_that_one_takes_and_a_restart_is_not_noticed(
    daemon: Daemon, where: dict[str, Any]
) -> None:
    async with AsyncExitStack() as stack, Sts({}) as sts:
        serve = {**where, **({"port": free_port()} if "port" in where else {})}
        await asyncio.to_thread(daemon.start, chosen(sts, **serve))
        clients = [await reader(daemon, TRAPS)]
        if where:  # without one, the address has a path, which the SDK for JavaScript drops
            clients.append(await node(daemon))
        for number, client in enumerate(clients, start=1):
            stack.push_async_callback(client.stop)
            assert [(await client.ask())["key"] for _ in range(3)] == list(sts.sessions) * 3
            assert await answered(daemon, "imds") == {"200": 3 * number}
        if "port" in where:
            assert (await line(daemon, sts)).startswith(ARN)
            assert await answered(daemon, "imds") == {"200": 3 * len(clients) + 3}
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        clients.append(await reader(daemon, TRAPS))
        stack.push_async_callback(clients[-1].stop)
        assert {(await client.ask())["key"] for client in clients} == set(sts.sessions)
        if "port" in where:
            assert (await line(daemon, sts)).startswith(ARN)
        assert sts.actions["AssumeRoleWithWebIdentity"] == 1, "adopted"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("imds", "late")
@pytest.mark.timeout(120)
async def test_a_first_session_that_is_late_is_waited_for_within_the_last_of_three_requests(daemon: Daemon) -> None:
    """They wait for one second, and ask once."""
    names = ("boto3", "node", "command-line")
    async with AsyncExitStack() as stack, Sts({}) as sts:
        answers = HeldAnswers(sts)
        config = served(sts, free_port(), free_port(), "1h", names=names)
        for identity in config["identities"]:
            identity["serve"] = {"dialects": ["imds"], "port": free_port()}
        await running(daemon, {**config, "refresh": ONE_LONG_TRY})
        boto3, javascript = await asyncio.gather(reader(daemon, TRAPS, "boto3"), node(daemon, "node"))
        stack.push_async_callback(boto3.stop)
        stack.push_async_callback(javascript.stop)
        asks: dict[str, Callable[[], Awaitable[Any]]] = {
            "boto3": boto3.ask, "node": javascript.ask, "command-line": lambda: line(daemon, sts, "command-line"),
        }  # fmt: skip
        for number, name in enumerate(names):
            asking = asyncio.ensure_future(asks[name]())
            await counted(daemon, "imds", "200", 3 * number + 2)  # the session token and the role
            await asyncio.sleep(0.1)  # nothing shows that the agent has the third request; without it, the agent would not have to wait
            assert len(sts.sessions) == number
            answers.release(name)
            said = await asking
            own = [key for key, session in sts.sessions.items() if session.role == role(name)]
            assert said == {"key": own[0], **said} if isinstance(said, dict) else said.startswith(f"{ASSUMED}{name}/"), said
            assert await answered(daemon, "imds") == {"200": 3 * number + 3}, "three each, and none was answered with 503"
        assert sts.actions["AssumeRoleWithWebIdentity"] == len(names)
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("imds", "503")
@pytest.mark.timeout(120)
async def test_clients_that_were_told_503_find_the_session_when_they_ask_again(daemon: Daemon) -> None:
    async with AsyncExitStack() as stack, Sts({}) as sts:
        sts.hanging = True
        await running(daemon, {**chosen(sts, port=free_port()), "refresh": MANY_SHORT_TRIES})
        clients = [await reader(daemon, TRAPS), await node(daemon)]
        for client in clients:
            stack.push_async_callback(client.stop)
        said, typed = await asyncio.gather(asyncio.gather(*(client.ask() for client in clients)), line(daemon, sts))
        assert all("error" in one for one in said), said
        assert "Unable to locate credentials" in typed
        assert (await answered(daemon, "imds"))["503"] >= 1 + len(clients)
        sts.hanging = False
        await asyncio.to_thread(daemon.cli, "wait", "--timeout", "20")
        assert [(await client.ask()).get("key") for client in clients] == list(sts.sessions) * len(clients)
        assert (await line(daemon, sts)).startswith(ARN)
        await asyncio.to_thread(daemon.stop)
