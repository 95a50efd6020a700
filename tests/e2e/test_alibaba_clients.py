"""alibabacloud-credentials and @alicloud/credentials, unmodified, with the credentials URI.

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
from tests.e2e.daemon import Daemon, configuration, identity, issuer
from tests.e2e.held import MANY_SHORT_TRIES, ONE_LONG_TRY, HeldAnswers, answered, clients_of, connected, running
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.alibaba import AlibabaSts, Trust
from tests.servers.alibaba_cloud import PROVIDER, ROLE

NAME = "oss-reader"
ROTATIONS = 3
TRAPS = {
    "ALIBABA_CLOUD_ACCESS_KEY_ID": "trapped",
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "trapped",
    "ALIBABA_CLOUD_SECURITY_TOKEN": "trapped",
    "ALIBABA_CLOUD_PROFILE": "trapped",
    "ALIBABA_CLOUD_ECS_METADATA": "trapped",
    "ALIBABA_CLOUD_ROLE_ARN": "trapped",
    "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": "trapped",
    "ALIBABA_CLOUD_OIDC_TOKEN_FILE": "/nowhere",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
}
"""What would win over the endpoint, or keep a client from it."""
PYTHON = """
import asyncio, json, sys
from alibabacloud_credentials.client import Client
client = Client()
async def main():
    print("{}", flush=True)
    for _ in sys.stdin:
        try:
            found = await client.get_credential_async() if sys.argv[1] == "aio" else client.get_credential()
            said = {"id": found.access_key_id, "provider": found.provider_name}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)
asyncio.run(main())
"""
WAYS = ("sync", "aio", "node")


def chosen(sts: AlibabaSts, *names: str) -> dict[str, Any]:
    """Identities, or one, whose tokens that STS trusts."""
    url = f"http://127.0.0.1:{free_port()}"
    identities = [identity(name, "1h", serve={"dialects": ["uri"]}) for name in names or (NAME,)]
    for one in identities:
        role = ROLE if one["name"] == NAME else f"{ROLE.partition('/')[0]}/{one['name']}"
        one["provider"] = {"type": "alibaba", "roleArn": role, "oidcProviderArn": PROVIDER, "endpoint": sts.url}
        sts.trust[role] = Trust(issuer=url, subject=one["source"]["subject"], provider=PROVIDER)
    block = issuer(url=url, listen=[url.removeprefix("http://")], algorithm="RS256")
    return configuration(*identities, issuer=block, metadata={"listen": [f"127.0.0.1:{free_port()}"]})


async def client(daemon: Daemon, way: str, name: str = NAME) -> Client:
    if way == "node":
        modules = await asyncio.to_thread(node_path)
        command = ["node", str(SCRIPTS / "alibaba.cjs"), "nowhere.example", "9"]
        return await started(daemon, taking(daemon, name, *command, via="endpoint"), {**TRAPS, "NODE_PATH": str(modules)})
    return await started(daemon, taking(daemon, name, sys.executable, "-c", PYTHON, way, via="endpoint"), TRAPS)


def authorization(daemon: Daemon, name: str = NAME) -> str:
    return (daemon.folder / "identities" / name / "authorization").read_text()


@pytest.mark.shows("uri", "rotations", "restart")
@pytest.mark.timeout(240)
async def test_clients_that_were_made_before_go_on_across_rotations_and_a_restart(daemon: Daemon) -> None:
    """They ask again from 15 min before the end, so every question is answered with what there is then."""
    async with AsyncExitStack() as stack, AlibabaSts({}) as sts:
        sts.lifetime = 30.0
        await asyncio.to_thread(daemon.start, chosen(sts))
        clients = list(await asyncio.gather(*(client(daemon, way) for way in WAYS)))
        for one in clients:
            stack.push_async_callback(one.stop)
        seen: list[set[str]] = [set() for _ in clients]
        while min(map(len, seen)) <= ROTATIONS:
            for one, ids in zip(clients, seen, strict=True):
                said = await one.ask()
                assert said.get("id") in sts.sessions, said
                assert sts.sessions[said["id"]].expires_at.timestamp() > time.time()
                ids.add(said["id"])
            await asyncio.sleep(1.0)
        assert len(sts.sessions) < ROTATIONS + 4, "the agent asks, and not the clients"
        assert authorization(daemon) not in daemon.text()
        assert authorization(daemon) not in (await asyncio.to_thread(daemon.admin, "/metrics"))[1]
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        assert {(await one.ask()).get("id") for one in clients} <= set(sts.sessions)
        assert await answered(daemon, "uri") == {"200": len(clients)}, "all asked this agent"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("uri", "first", "reads")
@pytest.mark.timeout(120)
async def test_three_reads_are_one_request_and_a_restart_is_not_noticed(daemon: Daemon) -> None:
    async with AsyncExitStack() as stack, AlibabaSts({}) as sts:
        await asyncio.to_thread(daemon.start, chosen(sts))
        clients = list(await asyncio.gather(*(client(daemon, way) for way in WAYS)))
        for number, one in enumerate(clients, start=1):
            stack.push_async_callback(one.stop)
            said = [await one.ask() for _ in range(3)]
            assert [each.get("id") for each in said] == list(sts.sessions) * 3, said
            assert await answered(daemon, "uri") == {"200": number}
        before = authorization(daemon)
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        assert authorization(daemon) == before
        for way in WAYS:
            clients.append(await client(daemon, way))
            stack.push_async_callback(clients[-1].stop)
        assert {(await one.ask()).get("id") for one in clients} == set(sts.sessions)
        assert len(sts.sessions) == 1, "adopted"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("uri", "late")
@pytest.mark.timeout(120)
async def test_a_first_session_that_is_late_is_waited_for_within_the_only_request(daemon: Daemon) -> None:
    """By a herd, too, which is one exchange."""
    async with AsyncExitStack() as stack, AlibabaSts({}) as sts, aiohttp.ClientSession() as http:
        answers, herd = HeldAnswers(sts), 200
        await running(daemon, {**chosen(sts, *WAYS, "herd"), "refresh": ONE_LONG_TRY})
        clients = dict(zip(WAYS, await asyncio.gather(*(client(daemon, way, way) for way in WAYS)), strict=True))
        for one in clients.values():
            stack.push_async_callback(one.stop)
        for number, (name, one) in enumerate(clients.items(), start=1):
            before = clients_of(daemon)
            reading = asyncio.ensure_future(one.ask())
            await connected(daemon, before)
            assert len(sts.sessions) == number - 1
            answers.release(name)
            said = await reading
            assert said.get("id") == list(sts.sessions)[-1], said
            assert await answered(daemon, "uri") == {"200": number}, "one request each, and none was answered with 503"

        url = f"http://{daemon.address('metadata')}/alibaba/herd/{authorization(daemon, 'herd')}/credentials"

        async def ask() -> str:
            async with http.get(url) as response:
                body = await response.json()
                assert response.status == 200, body
                return str(body["AccessKeyId"])

        before = clients_of(daemon)
        crowd = asyncio.gather(*(ask() for _ in range(herd)))
        await connected(daemon, before, 100)  # aiohttp opens no more at a time
        answers.release("herd")
        assert set(await crowd) == {list(sts.sessions)[-1]}
        assert len(sts.sessions) == len(clients) + 1
        assert await answered(daemon, "uri") == {"200": len(clients) + herd}
        await asyncio.to_thread(daemon.stop)


@pytest.mark.shows("uri", "503")
@pytest.mark.timeout(120)
async def test_clients_that_were_told_503_find_the_session_when_they_ask_again(daemon: Daemon) -> None:
    async with AsyncExitStack() as stack, AlibabaSts({}) as sts:
        sts.hanging = True
        await running(daemon, {**chosen(sts), "refresh": MANY_SHORT_TRIES})
        clients = list(await asyncio.gather(*(client(daemon, way) for way in WAYS)))
        for one in clients:
            stack.push_async_callback(one.stop)
        said = await asyncio.gather(*(one.ask() for one in clients))
        assert all("error" in one for one in said), "these SDKs ask once"
        assert await answered(daemon, "uri") == {"503": len(clients)}, said
        sts.hanging = False
        await asyncio.to_thread(daemon.cli, "wait", "--timeout", "20")
        assert {(await one.ask()).get("id") for one in clients} == set(sts.sessions)
        await asyncio.to_thread(daemon.stop)
