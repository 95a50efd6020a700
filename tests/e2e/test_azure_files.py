"""azure-identity and @azure/identity, unmodified, with the token file that the agent keeps, across three rotations.

They use what they read of the file for ten and five minutes, so their clock, and only theirs, is set forward between
rotations: a client that did not read again would present a token that Entra takes for too old.
"""

import asyncio
import json
import shlex
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.daemon import COMMAND, Daemon, configuration, identity, issuer
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.entra import AUDIENCE, CLIENT, TENANT, Entra, Federated
from tests.servers.tls import certificate

NAME = "vault-reader"
ROTATIONS = 3
FORWARD = 700
"""Seconds for each rotation: more than any SDK uses a file that it has read, and than Entra grants."""
TRAPS = {
    "AZURE_CLIENT_SECRET": "trapped",
    "AZURE_TOKEN_CREDENTIALS": "dev",
    "IDENTITY_ENDPOINT": "http://127.0.0.1:9",
    "IDENTITY_HEADER": "x",
}
"""What would win over the token file, were it not cleared."""
PYTHON = """
import asyncio, json, sys, time
kind, flavour = sys.argv[1:]
if flavour == "aio":
    from azure.identity import aio as module
else:
    import azure.identity as module
credential = getattr(module, kind)()
real = time.time
async def main():
    print("{}", flush=True)
    for line in sys.stdin:
        ahead = float(line)
        time.time = lambda: real() + ahead
        try:
            token = credential.get_token("https://vault.azure.net/.default")
            said = {"token": (await token if flavour == "aio" else token).token}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)
    if flavour == "aio":
        await credential.close()
asyncio.run(main())
"""


class Client:
    """One process with one credential object, made once and asked again and again."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, ahead: float) -> str:
        """The access token it gets with its clock so many seconds ahead."""
        assert self._process.stdin
        self._process.stdin.write(f"{ahead}\n".encode())
        said = await self.line()
        assert "token" in said, said
        return said["token"]

    async def line(self) -> dict[str, str]:
        assert self._process.stdout
        assert self._process.stderr
        line = await asyncio.wait_for(self._process.stdout.readline(), 40)
        assert line, (await self._process.stderr.read()).decode()
        found: dict[str, str] = json.loads(line)
        return found

    async def stop(self) -> None:
        """Its end of input, and if that is not enough, its end."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.communicate(), 10)
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
        assert self._process.returncode == 0


async def started(daemon: Daemon, take: str, command: list[str], more: Mapping[str, str]) -> Client:
    """A client in a shell that took the variables first."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f"{take} && exec {shlex.join(command)}", cwd=daemon.folder, env={**daemon.environment, **more},
        stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    client = Client(process)
    await client.line()
    return client


def chosen(entra: Entra, port: int, **provider: Any) -> dict[str, Any]:
    """One Azure identity whose tokens that Entra trusts, with the exchange left to SDKs; the issuer on a known port."""
    url = f"http://127.0.0.1:{port}"
    one = identity(NAME, "1h")
    one["provider"] = {"type": "azure", "tenantId": TENANT, "clientId": CLIENT, "authority": entra.url, **provider}
    entra.trust = {CLIENT: Federated(issuer=url, subject=one["source"]["subject"], audience=AUDIENCE)}
    return configuration(one, issuer=issuer(url=url, listen=[f"127.0.0.1:{port}"], algorithm="RS256"))


@pytest.mark.timeout(240)
async def test_unmodified_clients_read_the_token_file_again_after_each_rotation(daemon: Daemon) -> None:
    modules = await asyncio.to_thread(node_path)
    context, pem = certificate(daemon.folder, "127.0.0.1")
    async with AsyncExitStack() as stack, Entra({}, tls=context) as entra:
        entra.lifetime, entra.generations = 30, 2
        await asyncio.to_thread(daemon.start, chosen(entra, free_port(), exchange=False))
        told = [*COMMAND, "-c", str(daemon.file), "env", NAME, "--via", "files"]
        env = f'told="$({shlex.join(told)})" && eval "$told"'
        file = Path("identities", NAME, "credentialsFile")
        python, node = [sys.executable, "-c", PYTHON], ["node", str(SCRIPTS / "azure.cjs")]
        ways: list[tuple[str, list[str], Mapping[str, str]]] = [
            (env, [*python, "WorkloadIdentityCredential", "sync"], {**TRAPS, "REQUESTS_CA_BUNDLE": pem}),
            (env, [*python, "DefaultAzureCredential", "sync"], {**TRAPS, "REQUESTS_CA_BUNDLE": pem}),
            (env, [*python, "DefaultAzureCredential", "aio"], {**TRAPS, "SSL_CERT_FILE": pem}),
            (f"set -a && . ./{file}", [*python, "WorkloadIdentityCredential", "aio"], {"SSL_CERT_FILE": pem}),
            (env, [*node, "workload"], {**TRAPS, "NODE_PATH": str(modules), "NODE_EXTRA_CA_CERTS": pem}),
            (env, [*node, "default"], {**TRAPS, "NODE_PATH": str(modules), "NODE_EXTRA_CA_CERTS": pem}),
        ]
        clients = [await started(daemon, *way) for way in ways]
        for client in clients:
            stack.push_async_callback(client.stop)
        tokens: set[str] = set()
        for rotation in range(ROTATIONS + 1):
            if rotation:
                before, last = daemon.token(NAME)["jti"], time.monotonic() + 30
                while daemon.token(NAME)["jti"] == before:
                    assert time.monotonic() < last
                    await asyncio.to_thread(daemon.cli, "renew", NAME)  # taken once in ten seconds
                    await asyncio.sleep(1)
            entra.presented.clear()
            tokens |= {await client.ask(FORWARD * rotation) for client in clients}
            assert set(entra.presented) == {daemon.token(NAME)["jti"]}, "each has read what lies there now"
            assert len(entra.presented) == len(clients)
        assert tokens <= set(entra.granted)
        assert len(tokens) == len(clients) * (ROTATIONS + 1)


@pytest.mark.timeout(120)
async def test_the_agent_does_the_exchange_for_each_scope_and_says_until_when(daemon: Daemon) -> None:
    context, pem = certificate(daemon.folder, "127.0.0.1")
    async with Entra({}, tls=context) as entra:
        scopes = ["https://vault.azure.net/.default", "https://storage.azure.com/.default"]
        await asyncio.to_thread(daemon.start, chosen(entra, free_port(), scopes=scopes, caFile=pem))
        last = time.monotonic() + 10
        while set(entra.granted.values()) != {"https://vault.azure.net", "https://storage.azure.com"}:
            assert time.monotonic() < last, daemon.text()
            await asyncio.sleep(0.1)
        found = (await asyncio.to_thread(daemon.status))[NAME]
        assert found["state"] == "fresh"
        files = [path for path in (daemon.folder / "identities" / NAME).iterdir() if path.is_file()]
        assert {path.name for path in files} >= {"token", "credentialsFile", "config", "grant.json"}
        said = [*(path.read_text() for path in files), daemon.text(), (await asyncio.to_thread(daemon.cli, "status", "--json")).stdout]
        assert not any(token in text for token in entra.granted for text in said)
        assert json.loads((daemon.folder / "identities" / NAME / "config").read_text())["scopes"] == scopes
