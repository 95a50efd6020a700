"""In a network of its own with the clouds' link-local addresses on loopback: SDKs that are told nothing find the agent.

GCE needs its name in the hosts file; where a container runtime or a pod's hostAliases would write it, a mount namespace does.
"""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.aws import AWS
from tests.e2e.daemon import COMMAND, Daemon, configuration, identity, until
from tests.e2e.node import SCRIPTS, node_path

ADDRESSES = ("169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "100.100.100.200/32", "fd00:ec2::254/128")
LISTEN = ["169.254.169.254:80", "169.254.170.2:80", "169.254.170.23:80", "[fd00:ec2::254]:80", "127.0.0.1:9481"]
SERVERS = """
import asyncio, json, sys
from pathlib import Path
from tests.servers.cloud import ROLE
from tests.servers.gcp import AUDIENCE, PATH, Gcp, Pool
from tests.servers.sts import Sts, Trust

async def main() -> None:
    issuer, roles, subjects = sys.argv[1], ROLE, json.loads(sys.argv[2])
    async with Sts({}) as sts, Gcp({}) as gcp:
        sts.trust = {ROLE: Trust(issuer=issuer, subject=subjects["aws"])}
        gcp.pools = {f"//iam.googleapis.com/{PATH}": Pool(issuer, (AUDIENCE,))}
        print(json.dumps({"sts": sts.url, "gcp": gcp.url}), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
BOTO3 = "import boto3; print(boto3.Session().get_credentials().access_key)"
GOOGLE = """
import google.auth, google.auth.transport.requests
credentials, project = google.auth.default()
credentials.refresh(google.auth.transport.requests.Request())
print(credentials.token, project)
"""


def _namespaced() -> str:
    """Why there is no network namespace to be had here; empty where there is."""
    if not shutil.which("unshare") or not shutil.which("ip") or not shutil.which("nsenter"):
        return "unshare, nsenter or ip is not installed"
    made = subprocess.run(["unshare", "--net", "--mount", "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "only root may make a network namespace"


class Network:
    """A network and a mount namespace, held by a process that waits."""

    def __init__(self, folder: Path) -> None:
        hosts = folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n169.254.169.254 metadata.google.internal metadata\n")
        steps = [
            "ip link set lo up",
            *(f"ip addr add {address} dev lo nodad 2>/dev/null || ip addr add {address} dev lo" for address in ADDRESSES),
        ]
        steps += [f"mount --bind {shlex.quote(str(hosts))} /etc/hosts", "echo ready", "exec cat"]
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "/bin/sh", "-ec", "; ".join(steps)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout
        assert self._holder.stdout.readline() == b"ready\n"
        self.enter = ("nsenter", "--net", "--mount", f"--wdns={folder}", "--target", str(self._holder.pid), "--")

    def close(self) -> None:
        with self._holder:  # closes its pipes, at the end of which it ends
            pass


@pytest.mark.timeout(180)
def test_sdks_that_are_told_nothing_find_the_agent_at_the_clouds_own_addresses(daemon: Daemon) -> None:
    if reason := _namespaced():
        pytest.skip(reason)
    network = Network(daemon.folder)
    servers = None
    try:
        issuer, subjects = "http://127.0.0.1:9482", {"aws": "system:serviceaccount:demo:aws", "gcp": "system:serviceaccount:demo:gcp"}
        root = Path(__file__).parents[2]
        servers = subprocess.Popen(
            [*network.enter, sys.executable, "-c", SERVERS, issuer, json.dumps(subjects)],
            stdout=subprocess.PIPE, env={**daemon.environment, "PYTHONPATH": str(root)},
        )  # fmt: skip
        assert servers.stdout
        urls = json.loads(servers.stdout.readline())
        daemon.prefix = network.enter
        daemon.configure(_chosen(urls))
        daemon.start(wait=False)
        until(lambda: daemon.log("agent.started") or (daemon.process and daemon.process.poll() is not None))
        done = subprocess.run(
            [*network.enter, *COMMAND, "wait", "--timeout", "20", "-c", str(daemon.file)],
            env=daemon.environment, cwd=daemon.folder, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, daemon.text()
        assert _said(daemon, network, sys.executable, "-c", BOTO3).startswith("ASIA")
        assert _said(daemon, network, sys.executable, "-c", BOTO3, AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE="IPv6").startswith("ASIA")
        shown = {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(daemon.folder / "identities" / "aws" / "authorization")}
        for way in ({"RELATIVE_URI": "/aws/aws/credentials"}, {"FULL_URI": "http://169.254.170.23/aws/aws/credentials"}):
            named = {f"AWS_CONTAINER_CREDENTIALS_{name}": value for name, value in way.items()}
            assert _said(daemon, network, sys.executable, "-c", BOTO3, **named, **shown).startswith("ASIA"), "as ECS and EKS have it"
        region = {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_ENDPOINT_URL_STS": urls["sts"]}  # the command line reads none from there
        assert _said(daemon, network, AWS, "sts", "get-caller-identity", "--query", "Arn", "--output", "text", **region).startswith(
            "arn:aws:sts:"
        )
        modules = {"NODE_PATH": str(node_path())}
        assert json.loads(_said(daemon, network, "node", str(SCRIPTS / "aws.cjs"), lines="\n", **modules).splitlines()[-1])[
            "key"
        ].startswith("ASIA")
        token, project = _said(daemon, network, sys.executable, "-c", GOOGLE).split()
        assert len(token) > 16
        assert project == "demo-project"
        resource = f"{urls['gcp']}/resource"
        first, then = _said(daemon, network, "node", str(SCRIPTS / "google.cjs"), resource, lines="\n", **modules).splitlines()
        assert json.loads(first)["project"] == "demo-project"
        assert json.loads(then)["principal"] == "system:serviceaccount:demo:gcp"
        assert daemon.process
        daemon.process.terminate()
        assert daemon.process.wait(10) == 0
        daemon.process = None
    finally:
        daemon.kill()
        if servers:
            with servers:
                servers.kill()
        network.close()


def _chosen(urls: dict[str, str]) -> dict[str, Any]:
    from tests.servers.cloud import ROLE
    from tests.servers.gcp import PATH

    aws = identity("aws", serve={"dialects": ["imds", "container"], "default": True})
    aws["provider"] = {"type": "aws", "roleArn": ROLE, "region": "eu-west-1", "endpoint": urls["sts"]}
    gcp = identity("gcp", serve={"dialects": ["gce"], "default": True, "gce": {"projectId": "demo-project"}})
    gcp["provider"] = {"type": "gcp", "workloadIdentityProvider": PATH, "endpoint": urls["gcp"]}
    found = configuration(aws, gcp, metadata={"listen": LISTEN})
    found["issuer"] |= {"listen": ["127.0.0.1:9482"]}
    return yaml.safe_load(yaml.safe_dump(found))  # type: ignore[no-any-return]


def _said(daemon: Daemon, network: Network, *command: str, lines: str = "", **more: str) -> str:
    """What a client prints whose environment is empty."""
    done = subprocess.run(
        [*network.enter, *command], env={"PATH": daemon.environment["PATH"], "HOME": str(daemon.folder), **more},
        input=lines, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
