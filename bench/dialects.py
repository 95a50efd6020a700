"""Each dialect under load against a `web.Application` that gives the same bytes, while 100 other identities rotate.

By `wrk`, as in `metadata.py`. Then the memory of the agent with 1,000 connections that wait for their next request.
"""

import json
import shutil
import socket
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import figures
from bench.cloud import AUTHORIZATION, Agent
from bench.metadata import Request, compare
from bench.subjects import Subject, free_port, listening, until, write_tokens

ROTATING = 100
SHORT = 30.0
"""Seconds that their sessions live."""
CONNECTIONS = 32
ROUNDS = 9
IDLE = 1000
RESOURCE = "https://vault.azure.net"


@dataclass(frozen=True)
class Way:
    """To one identity's credential."""

    path: str
    provider: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    session: tuple[str, str] = ("", "")
    """Headers by which a session token is asked for and presented."""


AWS = {"type": "aws", "region": "eu-west-1"}
AZURE = {"type": "azure", "tenantId": "contoso.onmicrosoft.com", "clientId": "7d1a0c5e-8f0c-4f7a-9a55-0d8c3f1b2a90"}
ALIBABA = {"type": "alibaba", "roleArn": "acs:ram::1234567890:role/bench", "oidcProviderArn": "acs:ram::1234567890:oidc-provider/bench"}
GCP = {"type": "gcp", "workloadIdentityProvider": "projects/1/locations/global/workloadIdentityPools/pool/providers/bench"}
EC2, ECS = "X-aws-ec2-metadata-token", "X-aliyun-ecs-metadata-token"
WAYS = {
    "container": Way("/aws/container/credentials", AWS, {"Authorization": AUTHORIZATION}),
    "imds": Way("/latest/meta-data/iam/security-credentials/bench", AWS, session=(f"{EC2}-ttl-seconds", EC2)),
    "gce": Way("/computeMetadata/v1/instance/service-accounts/default/token", GCP, {"Metadata-Flavor": "Google"}),
    "appservice": Way(f"/azure/appservice/token?api-version=2019-08-01&resource={RESOURCE}", AZURE, {"X-IDENTITY-HEADER": AUTHORIZATION}),
    "azure-imds": Way(f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={RESOURCE}", AZURE, {"Metadata": "true"}),
    "uri": Way(f"/alibaba/uri/{AUTHORIZATION}/credentials", ALIBABA),
    "ecs": Way("/latest/meta-data/ram/security-credentials/bench", ALIBABA, session=(f"{ECS}-ttl-seconds", ECS)),
}


def main() -> None:
    wrk = shutil.which("wrk")
    if wrk is None:
        print("\nEach dialect under load: skipped, there is no wrk here")
        return
    figures.title(f"Each dialect under load, while {ROTATING} identities with sessions of {SHORT:.0f} s rotate")
    with _cloud(3600) as steady, _cloud(SHORT) as short, tempfile.TemporaryDirectory() as name:
        ours = _agent(Path(name), steady, short)
        try:
            until(lambda: listening(ours) and ours.refreshes() >= ROTATING + len(WAYS), "delivered", ours)
            for dialect, way in WAYS.items():
                _measure(wrk, dialect, way, ours)
            _idle(ours)
        finally:
            ours.stop()


def _measure(wrk: str, dialect: str, way: Way, ours: Agent) -> None:
    headers = _headers(way, ours.served)
    request = urllib.request.Request(f"http://127.0.0.1:{ours.served}{way.path}", headers=headers)
    port = free_port()
    with urllib.request.urlopen(request, timeout=10) as response, tempfile.TemporaryDirectory() as name:
        body = Path(name) / "body"
        body.write_bytes(response.read())
        floor = Subject(["bench.same", str(port), str(body), way.path.partition("?")[0]], port, Path(name))
        try:
            until(lambda: listening(floor), "listening", floor)
            asked = Request(way.path, headers)
            compare(wrk, CONNECTIONS, {ours.served: ours, port: floor}, asked, rounds=ROUNDS, who=f"{dialect}, ")
        finally:
            floor.stop()


def _headers(way: Way, port: int) -> dict[str, str]:
    """With a session token that outlives the measurement."""
    opens, presents = way.session
    if not opens:
        return dict(way.headers)
    request = urllib.request.Request(f"http://127.0.0.1:{port}/latest/api/token", method="PUT", headers={opens: "21600"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return {**way.headers, presents: response.read().decode()}


def _idle(ours: Agent) -> None:
    """Each connection has asked once."""
    before = ours.rss()
    way, opened = WAYS["azure-imds"], []
    for _ in range(IDLE):
        one = socket.create_connection(("127.0.0.1", ours.served))
        lines = [f"GET {way.path} HTTP/1.1", "Host: 127.0.0.1", *(f"{key}: {value}" for key, value in way.headers.items()), "", ""]
        one.sendall("\r\n".join(lines).encode())
        assert b" 200 " in one.recv(65536)[:20]
        opened.append(one)
    time.sleep(0.5)
    after = ours.rss()
    kept = sum(_open(one) for one in opened)
    for one in opened:
        one.close()
    each = 1024 * (after - before) / kept
    print(f"memory after {IDLE} connections that stay idle, {kept} of which were kept: {after:.1f} MiB, {each:.1f} KiB each")


def _open(connection: socket.socket) -> bool:
    """Whether it is, as far as the agent goes."""
    try:
        return connection.recv(1, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True


@contextmanager
def _cloud(lifetime: float) -> Iterator[Subject]:
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        subject = Subject(["bench.clouds", str(port), str(lifetime)], port, Path(name))
        try:
            until(lambda: listening(subject), "listening", subject)
            yield subject
        finally:
            subject.stop()


def _agent(folder: Path, steady: Subject, short: Subject) -> Agent:
    port, admin = free_port(), free_port()
    write_tokens(folder, ROTATING + len(WAYS), 3600)

    def identity(name: str, number: int, provider: Mapping[str, Any], upstream: Subject, serve: Mapping[str, Any]) -> dict[str, Any]:
        role = {"roleArn": "arn:aws:iam::123456789012:role/bench"} if provider is AWS else {}
        scope = {"scopes": [f"{RESOURCE}/.default"]} if provider is AZURE else {}
        endpoint = f"http://127.0.0.1:{upstream.port}"
        return {
            "name": name,
            "source": {"type": "file", "path": f"{folder}/token-{number}"},
            "provider": {**provider, **role, **scope, "audiences": ["bench"], "endpoint": endpoint},
            "serve": serve,
        }

    rooted = ("imds", "gce", "azure-imds", "ecs")
    identities = [
        identity(
            dialect, ROTATING + number, way.provider, steady,
            {"dialects": [dialect], **({"default": True} if dialect in rooted else {"authorization": AUTHORIZATION})},
        )
        for number, (dialect, way) in enumerate(WAYS.items())
    ]  # fmt: skip
    identities += [
        identity(f"i{number}", number, AWS, short, {"dialects": ["container"], "authorization": AUTHORIZATION})
        for number in range(ROTATING)
    ]
    configuration = {
        "control": {"socket": "./agent.sock"},
        "admin": {"listen": [f"127.0.0.1:{admin}"]},
        "metadata": {"listen": [f"127.0.0.1:{port}"]},
        "identities": identities,
    }
    (folder / "config.yaml").write_text(json.dumps(configuration))
    subject = Agent(["agent", "run", "-c", "config.yaml", "--log-level", "error"], admin, folder)
    subject.served = port
    return subject
