"""boto3, the aws command line and the SDK for JavaScript with instance metadata, unmodified, with nothing but what `env` prints."""

import asyncio
import json
import sys
import time
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.aws import NAME, Boto3, command_line, served
from tests.e2e.client import Client, once, started, taking
from tests.e2e.daemon import Daemon, until
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
READ = """
import json, sys
import boto3
session = boto3.Session()
reads = [session.get_credentials() and session.get_credentials().get_frozen_credentials().access_key for _ in range(int(sys.argv[1]))]
print(json.dumps(reads))
"""


def chosen(sts: Sts, lifetime: str = "1h", **serve: Any) -> dict[str, Any]:
    config = served(sts, free_port(), free_port(), lifetime)
    config["identities"][0]["serve"] = {"dialects": ["imds"], **serve}
    return config


async def node(daemon: Daemon) -> Client:
    modules = await asyncio.to_thread(node_path)
    return await started(
        daemon, taking(daemon, NAME, "node", str(SCRIPTS / "aws.cjs"), via="endpoint"), {**TRAPS, "NODE_PATH": str(modules)}
    )


async def requests(daemon: Daemon, code: str = "200") -> float:
    metrics = await asyncio.to_thread(daemon.metrics)
    return metrics.get(f'wi_agent_metadata_requests_total{{code="{code}",dialect="imds"}}', 0.0)


@pytest.mark.timeout(240)
async def test_clients_go_on_across_rotations(daemon: Daemon) -> None:
    """Not a boto3 made before: it believes that what has 30 s left has 12 to 20 minutes, which AWS's 15 min at least never come to."""
    async with Sts({}) as sts:
        sts.lifetime, sts.generations = 30.0, 2
        await asyncio.to_thread(daemon.start, chosen(sts, "30s", port=free_port()))
        more, directory = {**TRAPS, "AWS_ENDPOINT_URL_STS": sts.url}, daemon.folder / "identities" / NAME
        client = await node(daemon)
        keys: list[str] = []
        last = time.monotonic() + 150
        while len(keys) <= ROTATIONS:
            said = await client.ask()
            session = (directory / "credentials").read_text()
            if said.get("key") and said["key"] not in keys:
                keys.append(said["key"])
                assert said["account"] == "123456789012"
                assert (await command_line(daemon, "endpoint", more)).startswith("arn:aws:sts::123456789012:assumed-role/s3-reader/")
                fresh = await Boto3(daemon, "endpoint", more).start()
                assert "arn" in await fresh.ask(), fresh.said
                await fresh.stop()
            assert said.get("key") in sts.sessions, (said, session)
            assert time.monotonic() < last, keys
            await asyncio.sleep(1.0)
        await client.stop()
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("where", [{}, {"default": True}, {"port": True}])
async def test_three_reads_take_the_three_requests_that_one_takes_and_a_restart_is_not_noticed(
    daemon: Daemon, where: dict[str, Any]
) -> None:
    async with Sts({}) as sts:
        serve = {**where, **({"port": free_port()} if "port" in where else {})}
        await asyncio.to_thread(daemon.start, chosen(sts, **serve))
        reading = taking(daemon, NAME, sys.executable, "-c", READ, "3", via="endpoint")
        assert json.loads(await once(daemon, reading, TRAPS)) == list(sts.sessions) * 3
        assert await requests(daemon) == 3
        if where:  # without one, the address has a path, which the SDK for JavaScript drops
            client = await node(daemon)
            assert [(await client.ask())["key"] for _ in range(3)] == list(sts.sessions) * 3
            assert await requests(daemon) == 6
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        assert json.loads(await once(daemon, reading, TRAPS)) == list(sts.sessions) * 3
        if where:
            assert (await client.ask())["key"] in sts.sessions
            await client.stop()
        assert sts.actions["AssumeRoleWithWebIdentity"] == 1, "adopted"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_a_client_waits_for_a_credential_that_comes_in_time_and_finds_it_later_where_it_does_not(daemon: Daemon) -> None:
    async with Sts({}) as sts:
        sts.hanging = True
        config = chosen(sts)
        config["refresh"] = {"timeout": "1s", "backoff": {"initial": "1s", "max": "1s"}}
        await asyncio.to_thread(daemon.start, config, wait=False)
        await asyncio.to_thread(until, lambda: daemon.log("agent.started"))
        reading = taking(daemon, NAME, sys.executable, "-c", READ, "1", via="endpoint")
        assert json.loads(await once(daemon, reading, TRAPS)) == [None], "boto3 asks once and finds nothing"
        assert await requests(daemon, "503") >= 1
        sts.hanging = False
        await asyncio.to_thread(daemon.cli, "wait", "--timeout", "20")
        assert json.loads(await once(daemon, reading, TRAPS)) == list(sts.sessions)
        await asyncio.to_thread(daemon.stop)
