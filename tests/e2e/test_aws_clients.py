"""boto3 and the aws command line, unmodified, across rotations in real time, against an STS that verifies and grants 30 s.

They have what `env` prints, and beside it where STS is, which they ask who they are. The files that `env` leads nobody to,
since `token` is the better way to the same, are named by hand.
"""

import asyncio
import os
import time

import pytest

from bench.subjects import free_port
from tests.e2e.aws import NAME, Boto3, command_line, served
from tests.e2e.daemon import Daemon
from tests.e2e.held import answered
from tests.servers.sts import Sts

GRANTED = 30.0
"""Seconds, of each session."""
ROTATIONS = 3
EVERY = 2.5
"""Seconds between the calls of one client."""


def judge(client: Boto3, keys: int) -> None:
    """Every call was accepted, and they were signed with so many sessions at least."""
    wrong = [said["error"] for said in client.said if "error" in said]
    assert not wrong, wrong[0]
    assert len({said["key"] for said in client.said}) >= keys, client.said


@pytest.mark.shows("container", "rotations", "restart", clients=("boto3", "aws command line"))
@pytest.mark.timeout(240)
async def test_long_lived_clients_go_on_across_rotations_and_a_restart_and_short_ones_work_after_each(daemon: Daemon) -> None:
    async with Sts({}) as sts:
        sts.lifetime, sts.generations = GRANTED, 2
        await asyncio.to_thread(daemon.start, served(sts, free_port(), free_port()))
        directory = daemon.folder / "identities" / NAME
        asks = {"AWS_ENDPOINT_URL_STS": sts.url}
        ways: dict[str, tuple[str, dict[str, str]]] = {
            "container endpoint": ("endpoint", asks),
            "web identity": ("files", {}),
            "credentialsFile as configuration": ("", asks | {"AWS_CONFIG_FILE": str(directory / "credentialsFile")}),
            "credentialsFile as shared credentials": ("", asks | {"AWS_SHARED_CREDENTIALS_FILE": str(directory / "credentialsFile")}),
        }
        region = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}
        short = {**ways, "credentials": ("", asks | region | {"AWS_SHARED_CREDENTIALS_FILE": str(directory / "credentials")})}
        clients = {way: await Boto3(daemon, *how).start() for way, how in ways.items()}
        once = await Boto3(daemon, *ways["container endpoint"], mode="once").start()
        generations: list[str] = []
        judged = 0
        last = time.monotonic() + GRANTED * (ROTATIONS + 2)
        while judged <= ROTATIONS:
            assert time.monotonic() < last, generations
            began = time.monotonic()
            await asyncio.gather(*(client.ask() for client in [*clients.values(), once]))
            session = (directory / "credentials").read_text()
            if not generations or generations[-1] != session:
                generations.append(session)
                said = await asyncio.gather(*(command_line(daemon, *how) for how in short.values()))
                assert [text.split("/")[:2] for text in said] == [["arn:aws:sts::123456789012:assumed-role", "s3-reader"]] * len(short), (
                    said
                )
                new = await Boto3(daemon, *short["credentials"]).start()
                await new.ask()
                await new.stop()
                judge(new, 1)
                assert new.said[0]["key"] in session + (directory / "credentials").read_text(), "the newest, or by now the next"
                judged += 1
            await asyncio.sleep(max(0.0, EVERY - (time.monotonic() - began)))
        for way, client in clients.items():
            assert len(client.said) > 3 * ROTATIONS, way
            judge(client, ROTATIONS)
        with pytest.raises(AssertionError, match="ExpiredToken"):
            judge(once, 1)
        assert sts.actions["GetCallerIdentity"] > 12 * ROTATIONS
        metrics = await asyncio.to_thread(daemon.metrics)
        assert metrics[f'wi_agent_refresh_total{{identity="{NAME}",result="success"}}'] >= ROTATIONS + 1
        failed = {name: value for name, value in metrics.items() if name.startswith("wi_agent_refresh_total") and "success" not in name}
        assert not any(failed.values()), failed
        assert {line["level"] for line in daemon.log()} <= {"info", "warning"}
        assert [line["event"] for line in daemon.log() if line["level"] == "warning"] == ["grant.short"], daemon.log()
        assert os.readlink(directory / "token") == "..data/token"
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        said = await asyncio.gather(*(client.ask() for client in clients.values()))
        assert all("arn" in one for one in said), said
        assert await answered(daemon, "container") == {"200": 1}, "the one at the endpoint asks at each call"
        assert (await command_line(daemon, *ways["container endpoint"])).startswith("arn:aws:sts::123456789012:assumed-role/s3-reader/")
        for client in [*clients.values(), once]:
            await client.stop()
        await asyncio.to_thread(daemon.stop)
