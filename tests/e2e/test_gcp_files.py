"""google-auth, google-auth-library and gcloud, unmodified, with the files that the agent keeps, across three rotations.

Google grants 30 s and believes only the two newest tokens of an identity, so that each call is a new exchange with what
lies in the token file now.
"""

import asyncio
import shutil
import sys
import time
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.client import once, started, taking
from tests.e2e.daemon import Daemon, configuration, identity, issuer
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.gcp import ACCOUNT, AUDIENCE, PATH, Gcp, Pool

ROTATIONS = 3
LIFETIME = "12s"
WAYS: dict[str, dict[str, Any]] = {
    "itself": {"exchange": False},
    "exchanged": {},
    "acting": {"exchange": False, "serviceAccount": ACCOUNT, "lifetime": "10m"},
}
"""Provider settings by identity: an SDK as the identity itself, beside an agent that exchanges too, and as a service account."""
TRAPS = {
    "GCE_METADATA_HOST": "127.0.0.1:9",
    "GCE_METADATA_ROOT": "127.0.0.1:9",
    "CLOUDSDK_AUTH_ACCESS_TOKEN": "trapped",
    "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": "/nowhere",
    "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE": "/nowhere",
    "CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT": ACCOUNT,
}
"""What would win over the files, were it not cleared."""
PYTHON = """
import json, sys
import google.auth
from google.auth.transport.requests import AuthorizedSession
credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
session = AuthorizedSession(credentials)
print(json.dumps({"project": project}), flush=True)
for _ in sys.stdin:
    try:
        said = session.get(sys.argv[1]).json()
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), flush=True)
"""


def chosen(gcp: Gcp, port: int) -> dict[str, Any]:
    """The identities, whose tokens that Google trusts; the issuer on a known port."""
    url = f"http://127.0.0.1:{port}"
    gcp.pools = {f"//iam.googleapis.com/{PATH}": Pool(url, (AUDIENCE,))}
    places = {"type": "gcp", "workloadIdentityProvider": PATH, "endpoint": gcp.url}
    identities = [identity(name, LIFETIME) for name in WAYS]
    for one in identities:
        one["provider"] = {**places, **WAYS[one["name"]], **({"iamEndpoint": gcp.url} if "serviceAccount" in WAYS[one["name"]] else {})}
    gcp.users = {ACCOUNT: "system:serviceaccount:demo:acting"}
    return configuration(*identities, issuer=issuer(url=url, listen=[f"127.0.0.1:{port}"]))


def principal(name: str) -> str:
    """As whom Google sees a workload with this identity."""
    return ACCOUNT if name == "acting" else f"system:serviceaccount:demo:{name}"


def tokens(daemon: Daemon) -> dict[str, str]:
    """The id of the token that each identity has on disk."""
    return {name: str(daemon.token(name)["jti"]) for name in WAYS}


async def rotated(daemon: Daemon, before: dict[str, str]) -> dict[str, str]:
    """The same, once each has been replaced."""
    last = time.monotonic() + 30
    while not all(now != before[name] for name, now in tokens(daemon).items()):
        assert time.monotonic() < last, daemon.text()
        await asyncio.sleep(0.05)
    return tokens(daemon)


@pytest.mark.timeout(240)
async def test_unmodified_clients_read_the_token_file_again_after_each_rotation(daemon: Daemon) -> None:
    modules = await asyncio.to_thread(node_path)
    async with Gcp({}) as gcp:
        gcp.lifetime, gcp.generations = 30, 2
        await asyncio.to_thread(daemon.start, chosen(gcp, free_port()))
        resource = f"{gcp.url}/resource"
        sdks = {"python": [sys.executable, "-c", PYTHON, resource], "node": ["node", str(SCRIPTS / "google.cjs"), resource]}
        more = {**TRAPS, "NODE_PATH": str(modules)}
        clients = {
            (name, sdk): await started(daemon, taking(daemon, name, *command), more) for name in WAYS for sdk, command in sdks.items()
        }
        seen: dict[tuple[str, str], set[str]] = {way: set() for way in clients}
        now, last = tokens(daemon), time.monotonic() + 120
        while min(len(ids) for ids in seen.values()) <= ROTATIONS:  # each exchange is with what lies in the file then
            assert time.monotonic() < last, seen
            for (name, sdk), client in clients.items():
                said = await client.ask()
                assert said.get("principal") == principal(name), (name, sdk, said)
                seen[name, sdk].add(said["jti"])
            now = await rotated(daemon, now)
        for client in clients.values():
            await client.stop()
        failed = {
            name: value for name, value in daemon.metrics().items() if name.startswith("wi_agent_refresh_total") and "success" not in name
        }
        assert not any(failed.values()), failed


@pytest.mark.timeout(240)
async def test_gcloud_takes_each_identity_after_each_rotation(daemon: Daemon) -> None:
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        pytest.xfail(
            "gcloud is in no package registry that a build could install it from: the one client that this cannot be shown with here"
        )
    async with Gcp({}) as gcp:
        gcp.lifetime, gcp.generations = 60, 2
        await asyncio.to_thread(daemon.start, chosen(gcp, free_port()))
        printing = [gcloud, "auth", "print-access-token"]
        now = tokens(daemon)
        for rotation in range(ROTATIONS + 1):
            now = await rotated(daemon, now) if rotation else now
            for name, printed in zip(
                WAYS, await asyncio.gather(*(once(daemon, taking(daemon, one, *printing), TRAPS) for one in WAYS)), strict=True
            ):
                assert gcp.sessions[printed].principal == principal(name)
        assert (daemon.folder / "identities" / "exchanged" / "credentials").read_text() in gcp.sessions
