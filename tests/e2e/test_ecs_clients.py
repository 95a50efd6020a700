"""alibabacloud-credentials and @alicloud/credentials, unmodified, with ECS's metadata at 100.100.100.200, in a network of its own.

They have nothing but what `wi-agent env` prints, and of this test's own only the place of Node's modules.
"""

import asyncio
import json
import shutil
import socket
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import Client, started, taking
from tests.e2e.daemon import Daemon, configuration, identity
from tests.e2e.held import MANY_SHORT_TRIES, ONE_LONG_TRY, answered, counted, running
from tests.e2e.network import Network, namespaced
from tests.e2e.node import SCRIPTS, node_path
from tests.e2e.test_alibaba_clients import NAME, PYTHON, ROTATIONS, TRAPS, WAYS
from tests.servers.alibaba_cloud import PROVIDER, ROLE

ISSUER = "http://127.0.0.1:9482"
SUBJECT = f"system:serviceaccount:demo:{NAME}"
SERVER = """
import asyncio, json, sys
from tests.e2e.held import HeldAnswers
from tests.servers.alibaba import AlibabaSts, Trust
from tests.servers.alibaba_cloud import PROVIDER, ROLE

async def main() -> None:
    issuer, subject = sys.argv[1:]
    name = subject.rpartition(":")[2]
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with AlibabaSts({ROLE: Trust(issuer=issuer, subject=subject, provider=PROVIDER, longest=43200)}) as sts:
        answers = HeldAnswers(sts)
        answers.release(name)
        print(json.dumps({"url": sts.url}), flush=True)
        async for line in lines:  # each: how to behave from now on; answered with what has been granted so far
            said = json.loads(line)
            sts.lifetime, sts.hanging = said.get("lifetime", sts.lifetime), said.get("hanging", sts.hanging)
            if "held" in said:
                (answers.hold if said["held"] else answers.release)(name)
            print(json.dumps({id: one.expires_at.timestamp() for id, one in sts.sessions.items()}), flush=True)

asyncio.run(main())
"""


class Inside(Daemon):
    """An agent in a network that this process is not in."""

    def __init__(self, folder: Path, network: Network) -> None:
        super().__init__(folder)
        self.prefix = network.enter

    def admin(self, path: str) -> tuple[int, str]:
        with socket.socket(socket.AF_UNIX) as to:
            to.connect(str(self.folder / "admin.sock"))
            to.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            with to.makefile() as answer:
                head, _, body = answer.read().partition("\n\n")
        return int(head.split()[1]), body

    async def client(self, way: str) -> Client:
        """A long-lived one."""
        if way == "node":
            modules = await asyncio.to_thread(node_path)
            command, more = ["node", str(SCRIPTS / "alibaba.cjs"), "nowhere.example", "9"], {"NODE_PATH": str(modules)}
        else:
            command, more = [sys.executable, "-c", PYTHON, way], {}
        shell = taking(self, NAME, *command, via="endpoint", dialect="ecs")
        return await started(self, [*self.prefix, *shell], {**TRAPS, "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true", **more})


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    if reason := namespaced():
        pytest.skip(reason)
    network = Network(tmp_path)
    made = Inside(tmp_path, network)
    try:
        yield made
    finally:
        made.kill()
        network.close()


@asynccontextmanager
async def alibaba(inside: Inside, **behaviour: Any) -> AsyncIterator[tuple[Client, dict[str, Any]]]:
    """An STS in that network, which takes orders, and a configuration whose one identity it trusts."""
    command = [*inside.prefix, sys.executable, "-c", SERVER, ISSUER, SUBJECT]
    environment = {**inside.environment, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    sts = Client(process)
    try:
        url = (await sts.line())["url"]
        await sts.ask(json.dumps(behaviour))
        one = identity(NAME, "1h", serve={"dialects": ["uri", "ecs"], "default": True})
        one["provider"] = {"type": "alibaba", "roleArn": ROLE, "oidcProviderArn": PROVIDER, "endpoint": url, "duration": "3h"}
        config = configuration(one, metadata={"listen": ["100.100.100.200:80"]}, admin={"listen": ["unix:./admin.sock"]})
        config["issuer"] |= {"url": ISSUER, "listen": [ISSUER.removeprefix("http://")], "algorithm": "RS256"}
        yield sts, config
        await sts.stop()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.shows("ecs", "rotations", "restart")
@pytest.mark.timeout(240)
async def test_clients_that_were_made_before_go_on_across_rotations_and_a_restart(inside: Inside) -> None:
    async with AsyncExitStack() as stack, alibaba(inside, lifetime=30) as (sts, config):
        await asyncio.to_thread(inside.start, config)
        clients = list(await asyncio.gather(*(inside.client(way) for way in WAYS)))
        for one in clients:
            stack.push_async_callback(one.stop)
        seen: list[set[str]] = [set() for _ in clients]
        while min(map(len, seen)) <= ROTATIONS:
            for one, ids in zip(clients, seen, strict=True):
                said = await one.ask()
                assert (await sts.ask("{}")).get(said.get("id"), 0) > time.time(), said
                ids.add(said["id"])
            await asyncio.sleep(1.0)
        granted = await sts.ask("{}")
        assert len(granted) < ROTATIONS + 4, "the agent asks, and not the clients"
        await asyncio.to_thread(inside.stop)
        await asyncio.to_thread(inside.start)
        for one in clients:
            said = await one.ask()
            assert (await sts.ask("{}")).get(said.get("id"), 0) > time.time(), said
        assert await answered(inside, "ecs") == {"200": 2 * len(clients)}, "all asked this agent"
        await asyncio.to_thread(inside.stop)


@pytest.mark.shows("ecs", "first", "reads", "late")
@pytest.mark.timeout(120)
async def test_a_first_session_that_is_late_is_waited_for_and_three_reads_are_the_two_requests_that_one_is(inside: Inside) -> None:
    """A session token and the credential: `env` has told them the role."""

    async with AsyncExitStack() as stack, alibaba(inside) as (sts, config):
        for way in WAYS:  # the address is one, so the identity is, and each client has an agent of its own
            await sts.ask(json.dumps({"held": True}))
            before = await sts.ask("{}")
            await running(inside, {**config, "refresh": ONE_LONG_TRY})
            one = await inside.client(way)
            stack.push_async_callback(one.stop)
            reading = asyncio.ensure_future(one.ask())
            await counted(inside, "ecs", "200", 1)
            await asyncio.sleep(0.1)  # nothing shows that the agent has the second request
            assert await sts.ask(json.dumps({"held": False})) == before, "nothing until now"
            said = await reading
            granted = [key for key in await sts.ask("{}") if key not in before]
            assert [said.get("id", str(said))] == granted
            assert await answered(inside, "ecs") == {"200": 2}, "none was answered with 503"
            assert [(await one.ask()).get("id") for _ in range(2)] == granted * 2
            assert await answered(inside, "ecs") == {"200": 2}
            await asyncio.to_thread(inside.stop)
            if way != WAYS[-1]:
                shutil.rmtree(inside.folder / "identities")
        await asyncio.to_thread(inside.start)
        new = await asyncio.gather(*(inside.client(way) for way in WAYS))
        for one in new:
            stack.push_async_callback(one.stop)
        assert [(await one.ask()).get("id") for one in new] == granted * len(new)
        assert [key for key in await sts.ask("{}") if key not in before] == granted, "adopted"
        await asyncio.to_thread(inside.stop)


@pytest.mark.shows("ecs", "503")
@pytest.mark.timeout(120)
async def test_clients_that_were_told_503_find_the_session_when_they_ask_again(inside: Inside) -> None:
    """Node's by a new client: one that was told 503 asks the next in its chain ever after, the credentials URI, which it has not."""
    async with AsyncExitStack() as stack, alibaba(inside, hanging=True) as (sts, config):
        await running(inside, {**config, "refresh": MANY_SHORT_TRIES})
        clients = list(await asyncio.gather(*(inside.client(way) for way in WAYS)))
        for one in clients:
            stack.push_async_callback(one.stop)
        said = await asyncio.gather(*(one.ask() for one in clients))
        assert all("error" in one for one in said), said
        assert (await answered(inside, "ecs"))["503"] >= len(clients)
        await sts.ask(json.dumps({"hanging": False}))
        await asyncio.to_thread(inside.cli, "wait", "--timeout", "20")
        clients[WAYS.index("node")] = await inside.client("node")
        stack.push_async_callback(clients[WAYS.index("node")].stop)
        assert {(await one.ask()).get("id") for one in clients} == set(await sts.ask("{}"))
        await asyncio.to_thread(inside.stop)
