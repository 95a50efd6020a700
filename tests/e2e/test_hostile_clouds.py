"""Token services that answer with all that a parser can choke on: other identities' SDKs do not wait for it, and memory stays."""

import asyncio
import base64
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests.e2e.daemon import Daemon
from tests.e2e.everything import Everything, everything
from tests.servers.site import Site
from tests.servers.sts import NAMESPACE

LONGER_SECONDS = 0.05
"""Of the agent's processor time, which other processes do not change: a reader waits no longer than that for a hostile answer's work."""
WINDOWS = 8
"""Each holds every hostile answer; the best one counts, for what an answer costs it costs in all of them."""
MEMORY = 1.3
"""Times what the agent has at rest."""
READER = """
import json, socket, sys, time
port, authorization, pid, seconds = int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
request = f"GET /aws/aws/credentials HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nAuthorization: {authorization}\\r\\n\\r\\n".encode()
def used():
    with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9
asked = failed = 0
wall = processor = 0.0
with socket.create_connection(("127.0.0.1", port)) as one:
    last = time.monotonic() + seconds
    before = used()
    while (began := time.monotonic()) < last or asked <= 20:
        one.sendall(request)
        found = one.recv(65536)
        after = used()
        wall, processor, before = max(wall, time.monotonic() - began), max(processor, after - before), after
        asked, failed = asked + 1, failed + (not found.startswith(b"HTTP/1.1 200 "))
        time.sleep(0.001)
print(json.dumps({"asked": asked, "failed": failed, "wall": wall, "processor": processor}))
"""
KIB = 1024
WORDS = "all work and no play " * 13000
"""273 KB, more than an answer may have."""
WAITS = (
    "Mon, 01 Jan 2026 00:00:00 +99999999999999", "Fri, 31 Dec 9999 23:59:59 -2359", "1e309", "-1", "9" * 4000,
    "Mon, 01 Jan 0001 00:00:00 +2359",
)  # fmt: skip
MOMENTS = ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "9" * 5000, "1e999")


def xml(message: str, *, before: str = "", code: str = "InvalidIdentityToken") -> str:
    return f"{before}<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"


def granted_xml(expiration: str, more: str = "") -> str:
    keys = "<AccessKeyId>A</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
    keys += f"<Expiration>{expiration}</Expiration>"
    result = f"<AssumeRoleWithWebIdentityResult><Credentials>{keys}</Credentials>{more}</AssumeRoleWithWebIdentityResult>"
    return f'<AssumeRoleWithWebIdentityResponse xmlns="{NAMESPACE}">{result}</AssumeRoleWithWebIdentityResponse>'


def entities() -> str:
    """240 KB in which one entity of 240 KB stands ninety-seven times: expat allows a hundredfold."""
    declared = f'<!--<ErrorResponse--><!DOCTYPE a [<!ENTITY e "{"words and " * 24000}">]>'
    return xml("&e;" * 97, before=declared)


Trick = tuple[int, str, Mapping[str, str]]


def tricks() -> dict[str, list[Trick]]:
    """By cloud: status, body and headers."""
    deep, digits = "[" * 100_000, "9" * 200_000
    documents = [
        (400, '{"error": ' + deep, {}),
        (400, '{"error": "invalid_client", "error_codes": [' + digits + "]}", {}),
        (200, '{"access_token": "a", "expires_in": ' + digits + "}", {}),
        (200, '{"access_token": "' + WORDS[: 250 * KIB] + '", "expires_in": 3600}', {}),
        (200, '{"access_token": "a", "expires_in": 1e309, "x": [' + "{}," * 80_000 + "0]}", {}),
    ]
    told = {
        "aws": xml,
        "azure": lambda words: json.dumps({"error": "invalid_client", "error_description": f"AADSTS7000215: {words}"}),
        "gcp": lambda words: json.dumps({"error": "invalid_grant", "error_description": words}),
        "alibaba": lambda words: json.dumps({"Code": "AuthenticationFail.OIDCToken", "Message": words}),
    }
    found = {
        cloud: [
            (400, told[cloud](WORDS[: 250 * KIB]), {}),
            (400, told[cloud](WORDS[: 63 * KIB]), {}),
            *((503, told[cloud]("no"), {"Retry-After": wait}) for wait in WAITS),
            *(documents if cloud != "aws" else ()),
        ]
        for cloud in told
    }
    found["aws"] += [
        (400, entities(), {}),
        (200, "<!DOCTYPE a [" + "".join(f"<!ENTITY e{n + 1} '{f'&e{n};' * 10}'>" for n in range(9)) + "]>" + granted_xml("&e9;"), {}),
        (400, xml("<a>" * 60_000), {}),
        (200, granted_xml("2026-01-01T00:00:00Z", "<a b='c'/>" * 24_000), {}),
        *((200, granted_xml(moment), {}) for moment in MOMENTS),
    ]
    for moment in MOMENTS:
        keys = {"AccessKeyId": "a", "AccessKeySecret": "s", "SecurityToken": "t", "Expiration": moment}
        found["alibaba"].append((200, json.dumps({"Credentials": keys}), {}))
        found["gcp"].append((200, json.dumps({"accessToken": "a", "expireTime": moment}), {}))
    return found


class Hostile(Site):
    """Refuses plainly until it is let loose."""

    def __init__(self, trick: Trick) -> None:
        super().__init__()
        self._trick = trick
        self.loose = False

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        if not self.loose:
            return web.Response(status=503)
        status, body, headers = self._trick
        return web.Response(status=status, body=body.encode(), headers={"Content-Type": "text/plain", **headers})


def token_file(folder: Path) -> Path:
    """56 KB of a token that any of them may be sent."""
    claims = {
        "iss": "https://issuer.example",
        "sub": "system:serviceaccount:demo:hostile",
        "aud": ["sts.amazonaws.com", "api://AzureADTokenExchange", "sts.aliyuncs.com", f"https://iam.googleapis.com/{POOL}"],
        "iat": int(time.time()),
        "exp": int(time.time()) + 86400,
        "groups": "work and play " * 3000,
    }  # fmt: skip
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "RS256"}, claims)]
    path = folder / "hostile.jwt"
    path.write_text(".".join([*parts, "c2ln"]))
    assert 50 * KIB < path.stat().st_size < 64 * KIB
    return path


POOL = "projects/1/locations/global/workloadIdentityPools/pool/providers/prov"
PROVIDERS: dict[str, dict[str, Any]] = {
    "aws": {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/hostile", "region": "eu-west-1"},
    "azure": {"type": "azure", "tenantId": "72f988bf-86f1-41af-91ab-2d7cd011db47", "clientId": "72f988bf-86f1-41af-91ab-2d7cd011db48"},
    "gcp": {"type": "gcp", "workloadIdentityProvider": POOL},
    "alibaba": {
        "type": "alibaba", "roleArn": "acs:ram::1234567890123456:role/hostile",
        "oidcProviderArn": "acs:ram::1234567890123456:oidc-provider/hostile",
    },
}  # fmt: skip


@asynccontextmanager
async def hostile(one: Everything) -> AsyncIterator[list[Hostile]]:
    """An identity for each trick, beside those that there are, every one with a server of its own."""
    daemon = one.daemon
    config = yaml.safe_load(daemon.file.read_text())
    config["refresh"] = {"backoff": {"initial": "1s", "max": "1s"}}
    source = {"type": "file", "path": str(token_file(daemon.folder))}
    async with AsyncExitStack() as stack:
        sites = []
        for cloud, made in tricks().items():
            for number, trick in enumerate(made):
                site = await stack.enter_async_context(Hostile(trick))
                sites.append(site)
                provider = {**PROVIDERS[cloud], "endpoint": site.url}
                config["identities"].append(
                    {"name": f"hostile-{cloud}-{number}", "required": False, "source": source, "provider": provider}
                )
                if cloud == "azure":
                    provider["scopes"] = ["https://vault.azure.net/.default"]
        daemon.configure(config)
        daemon.signal(signal.SIGHUP)
        while not all(site.requests for site in sites):
            assert not daemon.log("config.refused"), daemon.text()
            await asyncio.sleep(0.05)
        yield sites


async def read(one: Everything, seconds: float) -> dict[str, float]:
    """What an SDK sees for so long."""
    assert one.daemon.process
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", READER, str(one.port), one.authorizations["aws"], str(one.daemon.process.pid), str(seconds),
        stdout=subprocess.PIPE,
    )  # fmt: skip
    out, _ = await reader.communicate()
    found: dict[str, float] = json.loads(out)
    assert found["failed"] == 0
    return found


def memory(pid: int, which: str) -> int:
    """KiB: `VmRSS` now, or `VmHWM` at its highest."""
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{which}:")[2].split()[0])


@pytest.mark.alone  # on a busy machine the hostile answers come in heaps, which no reader should have to wait for
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seconds", [3.0, pytest.param(60.0, marks=[pytest.mark.torture, pytest.mark.timeout(900)])])
async def test_no_answer_of_a_cloud_delays_another_identity(daemon: Daemon, seconds: float, record_property: Any) -> None:
    async with everything(daemon) as one, hostile(one) as sites:
        assert daemon.process
        pid = daemon.process.pid
        await asyncio.sleep(3)
        quiet, rest = await read(one, seconds), memory(pid, "VmRSS")
        seen = []
        for site in sites:
            site.loose, site.requests = True, 0
        while not all(site.requests for site in sites):
            await asyncio.sleep(0.05)
        longer = math.inf
        for _ in range(WINDOWS):
            seen.append(await read(one, seconds))
            longer = min(longer, seen[-1]["processor"] - quiet["processor"])
            if longer <= LONGER_SECONDS:
                break
        peak = memory(pid, "VmHWM")
        figures = {"quiet": quiet, "hostile": seen, "rest": rest, "peak": peak, "identities": len(sites)}
        record_property("figures", figures)
        sys.stdout.write(f"{json.dumps(figures)}\n")
        assert daemon.process.poll() is None
        assert daemon.admin("/healthz") == (200, "ok\n")
        metrics = await asyncio.to_thread(daemon.metrics)
        assert {series: count for series, count in metrics.items() if '"defect"' in series and count} == {}
        assert sum(count for series, count in metrics.items() if series.startswith("wi_agent_task_failures_total")) == 0
        assert longer <= LONGER_SECONDS
        assert peak <= MEMORY * rest
        assert max(len(line) for line in daemon.stderr.read_text().splitlines()) < 8 * KIB
