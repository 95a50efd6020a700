"""alibabacloud-credentials and @alicloud/credentials, unmodified, with the token file that the agent keeps, across three rotations.

They stay with a session until fifteen minutes before its end; STS grants 30 s here, so that each question is an exchange
with what lies in the file at that moment.
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.client import Client, started, taking
from tests.e2e.daemon import Daemon, configuration, identity, issuer
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.alibaba import AlibabaSts, Trust
from tests.servers.alibaba_cloud import PROVIDER, ROLE
from tests.servers.tls import certificate

NAME = "oss-reader"
HOST = "sts.eu-central-1.aliyuncs.com"
ROTATIONS = 3
TRAPS = {
    "ALIBABA_CLOUD_ACCESS_KEY_ID": "trapped",
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "trapped",
    "ALIBABA_CLOUD_SECURITY_TOKEN": "trapped",
    "ALIBABA_CLOUD_PROFILE": "trapped",
    "ALIBABA_CLOUD_CREDENTIALS_URI": "http://127.0.0.1:9",
    "ALIBABA_CLOUD_ECS_METADATA": "trapped",
    "ALIBABA_CLOUD_STS_REGION": "cn-trapped",
    "ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED": "true",
}
"""What would win over the token file or ask elsewhere, were it not cleared."""
PYTHON = """
import asyncio, json, socket, sys
way, host, port = sys.argv[1:]
resolve = socket.getaddrinfo  # the SDK knows no other STS than the region's, whose name leads to the one here
socket.getaddrinfo = lambda name, *more, **named: resolve("127.0.0.1", int(port)) if name == host else resolve(name, *more, **named)
from alibabacloud_credentials.client import Client
from alibabacloud_credentials.provider import ProfileCredentialsProvider
client = Client(provider=ProfileCredentialsProvider()) if way == "profile" else Client()
async def main():
    print("{}", flush=True)
    for _ in sys.stdin:
        try:
            found = await client.get_credential_async() if way == "aio" else client.get_credential()
            said = {"id": found.access_key_id, "provider": found.provider_name}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)
asyncio.run(main())
"""


def chosen(sts: AlibabaSts, port: int, lifetime: str, **provider: Any) -> dict[str, Any]:
    """One Alibaba identity whose tokens that STS trusts; the issuer on a known port."""
    url = f"http://127.0.0.1:{port}"
    one = identity(NAME, lifetime)
    one["provider"] = {"type": "alibaba", "roleArn": ROLE, "oidcProviderArn": PROVIDER, "region": "eu-central-1", **provider}
    sts.trust = {ROLE: Trust(issuer=url, subject=one["source"]["subject"], provider=PROVIDER)}
    return configuration(one, issuer=issuer(url=url, listen=[f"127.0.0.1:{port}"]))


@pytest.mark.timeout(240)
async def test_unmodified_clients_read_the_token_file_again_after_each_rotation(daemon: Daemon) -> None:
    modules = await asyncio.to_thread(node_path)
    context, pem = certificate(daemon.folder, HOST)
    async with AsyncExitStack() as stack, AlibabaSts({}, tls=context) as sts:
        sts.lifetime, sts.generations = 30, 2
        await asyncio.to_thread(daemon.start, chosen(sts, free_port(), "14s", exchange=False))
        python = {**TRAPS, "SSL_CERT_FILE": pem}
        node = {**TRAPS, "NODE_PATH": str(modules), "NODE_EXTRA_CA_CERTS": pem}
        where = (HOST, str(sts.port))
        ways = {
            "python": ([sys.executable, "-c", PYTHON, "default", *where], python),
            "python aio": ([sys.executable, "-c", PYTHON, "aio", *where], python),
            "python profile": ([sys.executable, "-c", PYTHON, "profile", *where], python),
            "node": (["node", str(SCRIPTS / "alibaba.cjs"), *where], node),
        }
        clients: dict[str, Client] = {}
        for name, (command, more) in ways.items():
            clients[name] = await started(daemon, taking(daemon, NAME, *command), more)
            stack.push_async_callback(clients[name].stop)
        seen: list[float] = []
        for _ in range(ROTATIONS + 1):
            last = time.monotonic() + 25
            while (issued := daemon.token(NAME)["iat"]) in seen:
                assert time.monotonic() < last
                await asyncio.sleep(0.2)
            seen.append(issued)
            for name, client in clients.items():
                said = await client.ask()
                assert "id" in said, (name, said)
                assert said["provider"].endswith("oidc_role_arn"), (name, said)
                session = sts.sessions[said["id"]]
                assert issued <= session.issued_at <= daemon.token(NAME)["iat"], f"{name} has read what lies there now"
                assert session.role == ROLE
                assert session.name.startswith(f"wi-{NAME}-")
        assert len(sts.sessions) == len(clients) * (ROTATIONS + 1)


@pytest.mark.timeout(120)
async def test_the_agent_does_the_exchange_and_the_session_lies_in_the_command_lines_form(daemon: Daemon) -> None:
    context, pem = certificate(daemon.folder, "127.0.0.1")
    async with AlibabaSts({}, tls=context) as sts:
        await asyncio.to_thread(daemon.start, chosen(sts, free_port(), "1h", endpoint=sts.url, caFile=pem))
        folder = daemon.folder / "identities" / NAME
        home = daemon.folder / "home" / ".aliyun"
        home.mkdir(parents=True)
        (home / "config.json").symlink_to(folder / "credentials")
        more = {"HOME": str(home.parent), "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true"}
        client = await started(daemon, [sys.executable, "-c", PYTHON, "default", HOST, "9"], more)
        said = await client.ask()
        await client.stop()
        assert said == {"id": next(iter(sts.sessions)), "provider": "default/cli_profile/static_sts"}
        assert sts.requests == 1
        secrets = [text for session in sts.sessions.values() for text in (session.secret, session.token)]
        told = [daemon.text(), (await asyncio.to_thread(daemon.cli, "status", "--json")).stdout]
        told += [path.read_text() for path in folder.iterdir() if path.is_file() and path.name != "credentials"]
        assert not any(secret in text for secret in secrets for text in told)
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        assert sts.requests == 1, "a restart finds the session in its files"
