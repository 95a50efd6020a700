"""Unmodified AWS clients as a workload runs them: an empty environment, and in it what `wi-agent env` prints, taken by a shell."""

import asyncio
import json
import shlex
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.client import Client, started, taking
from tests.e2e.daemon import COMMAND, Daemon, configuration, identity, issuer
from tests.servers.sts import Sts, Trust

NAME = "s3-reader"
AWS = str(Path(sys.executable).with_name("aws"))
BOTO3 = """
import json, re, sys
import boto3
session = boto3.Session()
known = {}
if sys.argv[1] == "once":
    read = session.get_credentials().get_frozen_credentials()
    known = {"aws_access_key_id": read.access_key, "aws_secret_access_key": read.secret_key, "aws_session_token": read.token}
client = session.client("sts", **known)
signed = []
client.meta.events.register("before-send.sts.GetCallerIdentity", lambda request, **_: signed.append(str(request.headers["Authorization"])))
print("{}", flush=True)
for _ in sys.stdin:  # each line: once more
    try:
        said = {"arn": client.get_caller_identity()["Arn"], "key": re.search(r"Credential=(\\w+)/", signed[-1])[1]}
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), flush=True)
"""

READER = """
import json, sys
import boto3
session = boto3.Session()
print("{}", flush=True)
for _ in sys.stdin:  # each line: once more
    try:
        found = session.get_credentials()
        said = {"key": found.get_frozen_credentials().access_key} if found else {"error": "no credentials"}
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), flush=True)
"""


def role(name: str) -> str:
    """The role of that identity."""
    return f"arn:aws:iam::123456789012:role/{name}"


async def reader(daemon: Daemon, more: Mapping[str, str], name: str = NAME) -> Client:
    """A session of boto3, made once, which says with which key it would sign."""
    return await started(daemon, taking(daemon, name, sys.executable, "-c", READER, via="endpoint"), more)


def served(sts: Sts, port: int, metadata: int, lifetime: str = "30s", *, names: Sequence[str] = (NAME,), **more: Any) -> dict[str, Any]:
    """AWS identities, exchanged, written and served, whose tokens the STS trusts; both listeners on known ports."""
    url = f"http://127.0.0.1:{port}"
    identities = [identity(name, lifetime, **{"serve": {"dialects": ["container"]}, **more}) for name in names]
    for one in identities:
        one["provider"] = {"type": "aws", "roleArn": role(one["name"]), "region": "eu-west-1", "endpoint": sts.url}
    sts.trust = {role(one["name"]): Trust(issuer=url, subject=one["source"]["subject"]) for one in identities}
    block = issuer(url=url, listen=[f"127.0.0.1:{port}"])
    return configuration(*identities, issuer=block, metadata={"listen": [f"127.0.0.1:{metadata}"]})


async def run(
    daemon: Daemon, variables: str, *command: str, more: Mapping[str, str] | None = None, name: str = NAME
) -> asyncio.subprocess.Process:
    """The command as a shell starts it that took the variables: options of `wi-agent env`, or nothing where `more` is all."""
    take = ""
    if variables:
        told = [*COMMAND, "-c", str(daemon.file), "env", name, "--via", variables]
        take = f'told="$({shlex.join(told)})" && eval "$told" && '
    return await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f"{take}exec {shlex.join(command)}", cwd=daemon.folder, env={**daemon.environment, **(more or {})},
        stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip


class Boto3:
    """One process with one client of STS, made once and asked again and again."""

    def __init__(self, daemon: Daemon, variables: str, more: Mapping[str, str], *, mode: str = "as it is") -> None:
        self._daemon = daemon
        self._variables = variables
        self._more = more
        self._mode = mode
        self.said: list[dict[str, str]] = []

    async def start(self) -> "Boto3":
        self._process = await run(self._daemon, self._variables, sys.executable, "-c", BOTO3, self._mode, more=self._more)
        await self._line()
        return self

    async def ask(self) -> dict[str, str]:
        """Who it is, and with which key it asked; or the error."""
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        self.said.append(await self._line())
        return self.said[-1]

    async def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), 60)

    async def _line(self) -> dict[str, str]:
        assert self._process.stdout
        assert self._process.stderr
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, (await self._process.stderr.read()).decode()
        found: dict[str, str] = json.loads(line)
        return found


async def command_line(daemon: Daemon, variables: str, more: Mapping[str, str], name: str = NAME) -> str:
    """What `aws sts get-caller-identity` says: the ARN, or its error."""
    process = await run(daemon, variables, AWS, "sts", "get-caller-identity", "--query", "Arn", "--output", "text", more=more, name=name)
    out, err = await asyncio.wait_for(process.communicate(), 90)
    return out.decode().strip() if process.returncode == 0 else err.decode().strip()
