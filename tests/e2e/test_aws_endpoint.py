"""The endpoint as a pod has it: a client that is there before the agent, an authorization that outlives it, a proxy to avoid.

Clients have what `env` prints, and beside it where STS is, which they ask who they are.
"""

import asyncio
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.aws import NAME, Boto3, command_line, run, served
from tests.e2e.daemon import Daemon
from tests.e2e.held import refused, refused_since
from tests.servers.site import Site
from tests.servers.sts import Sts

FIRST_ATTEMPT = """
import sys, boto3
session = boto3.Session()
print("ready", flush=True)
sys.stdin.readline()
print(session.get_credentials().access_key)
"""
UID = "6f1c9a0e-3c55-4a0b-9a52-5d1f6a1c7f10"
"""In the environment of both containers, as the chart feeds a Secret."""


@pytest.mark.alone  # botocore tries for two seconds
@pytest.mark.shows("container", "absent", clients=("boto3",))
async def test_a_client_that_asks_first_is_served_by_an_agent_that_starts_a_second_later(daemon: Daemon) -> None:
    async with Sts({}) as sts:
        config = served(sts, free_port(), free_port(), "1h")
        config["identities"][0]["serve"]["authorization"] = "${WI_AUTHORIZATION}"
        daemon.configure(config)
        daemon.environment["WI_AUTHORIZATION"] = UID
        client = await run(daemon, "endpoint", sys.executable, "-c", FIRST_ATTEMPT)
        assert client.stdin
        assert client.stdout
        assert await client.stdout.readline() == b"ready\n"
        await asyncio.to_thread(daemon.prepare)
        before = refused()
        client.stdin.write(b"\n")
        await refused_since(before)  # botocore tries for 2 s
        daemon.go()
        out, err = await asyncio.wait_for(client.communicate(), 40)
        assert list(sts.sessions) == [out.decode().strip()], err.decode()
        assert sts.actions == {"AssumeRoleWithWebIdentity": 1}
        assert UID not in daemon.text()
        await asyncio.to_thread(daemon.stop)


async def test_the_authorization_survives_a_restart_and_only_the_group_may_read_it(daemon: Daemon) -> None:
    async with Sts({}) as sts:
        group = next((gid for gid in os.getgroups() if gid != os.getegid()), os.getegid())
        directory = daemon.folder / "identities" / NAME
        sinks = [{"type": "files", "directory": str(directory), "group": group, "mode": "0640"}]
        config = served(sts, free_port(), free_port(), "1h", sinks=sinks)
        await asyncio.to_thread(daemon.start, config)
        file = directory / "authorization"
        before = file.read_text()
        assert len(before) >= 43
        assert before.strip() == before, "a newline would end the header"
        found = file.lstat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid, stat.S_ISREG(found.st_mode)) == (0o640, group, True)
        client = await Boto3(daemon, "endpoint", {"AWS_ENDPOINT_URL_STS": sts.url}).start()
        assert "arn" in await client.ask()
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        assert file.read_text() == before
        sts.actions.clear()
        said = await command_line(daemon, "endpoint", {"AWS_ENDPOINT_URL_STS": sts.url})
        assert said.startswith("arn:aws:sts::123456789012:assumed-role/s3-reader/"), said
        assert "arn" in await client.ask()
        await client.stop()
        assert "AssumeRoleWithWebIdentity" not in sts.actions, "adopted"
        assert before not in daemon.text()
        await asyncio.to_thread(daemon.kill)
        file.chmod(0o666)
        await asyncio.to_thread(daemon.start)
        assert file.read_text() != before, "anybody could have written it"
        assert stat.S_IMODE(file.lstat().st_mode) == 0o640
        await asyncio.to_thread(daemon.stop)


class Trap(Site):
    """A proxy that would see everything."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    async def answer(self, request: Any) -> Any:
        self.seen.append(f"{request.method} {request.raw_path}")
        return await super().answer(request)


async def test_what_env_prints_keeps_clients_off_a_proxy_and_off_every_other_way(daemon: Daemon, tmp_path: Path) -> None:
    async with Sts({}) as sts, Trap() as trap:
        await asyncio.to_thread(daemon.start, served(sts, free_port(), free_port(), "1h"))
        wrong = {
            "HTTP_PROXY": trap.url,
            "http_proxy": trap.url,
            "HTTPS_PROXY": trap.url,
            "NO_PROXY": "internal.example",
            "AWS_ENDPOINT_URL_STS": sts.url,
            "AWS_ACCESS_KEY_ID": "AKIASTATIC",
            "AWS_SECRET_ACCESS_KEY": "static",
            "AWS_PROFILE": "nobodys",
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/x",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "nothing"),
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": "wrong",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/wrong",
        }
        for variables in ("endpoint", "files"):
            client = await Boto3(daemon, variables, wrong if variables == "endpoint" else {**wrong, "no_proxy": "127.0.0.1"}).start()
            said = await client.ask()
            assert said.get("key") in sts.sessions, said
            await client.stop()
        assert trap.seen == []
        unguarded = await Boto3(daemon, "files", {**wrong, "NO_PROXY": ""}).start()
        await unguarded.ask()
        await unguarded.stop()
        assert trap.seen, "the trap works"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.parametrize("authorization", ["wrong-authorization-here", None])
async def test_a_client_with_another_authorization_or_none_gets_nothing(daemon: Daemon, authorization: str | None) -> None:
    async with Sts({}) as sts:
        port = free_port()
        await asyncio.to_thread(daemon.start, served(sts, free_port(), port, "1h"))
        variables = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{port}/aws/{NAME}/credentials",
            "AWS_DEFAULT_REGION": "eu-west-1",
        }
        if authorization:
            variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = authorization
        said = await command_line(daemon, "", variables | {"AWS_ENDPOINT_URL_STS": sts.url})
        assert "Received non 200 response 401" in said
        assert sts.actions == {"AssumeRoleWithWebIdentity": 1}, "the agent's own"
        metrics = await asyncio.to_thread(daemon.metrics)
        assert metrics['wi_agent_metadata_requests_total{code="401",dialect="container"}'] == 3, "botocore's tries"
        await asyncio.to_thread(daemon.stop)
