"""google-auth and google-auth-library with a metadata server, unmodified, with nothing but what `env` prints."""

import asyncio
import json
import shutil
import sys
import time
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.client import once, started, taking
from tests.e2e.daemon import Daemon, configuration, identity, issuer, until
from tests.e2e.node import SCRIPTS, node_path
from tests.servers.gcp import ACCOUNT, AUDIENCE, PATH, Gcp, Pool

ROTATIONS = 3
PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
TRAPS = {
    "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere",
    "NO_GCE_CHECK": "true",
    "CLOUDSDK_AUTH_ACCESS_TOKEN": "trapped",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
}
"""What would win over the endpoint, or keep a client from it."""
PYTHON = """
import json, sys
import google.auth
from google.auth.transport.requests import AuthorizedSession
credentials, project = google.auth.default(scopes=json.loads(sys.argv[2]) or None)
session = AuthorizedSession(credentials)
print(json.dumps({"project": project}), flush=True)
for _ in sys.stdin:
    try:
        said = session.get(sys.argv[1]).json()
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), flush=True)
"""
FETCH = """
import json, sys
import google.auth.transport.requests
import google.oauth2.id_token
try:
    print(google.oauth2.id_token.fetch_id_token(google.auth.transport.requests.Request(), sys.argv[1]))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def chosen(gcp: Gcp, lifetime: str = "1h", **serve: dict[str, Any]) -> dict[str, Any]:
    """Identities by name and how each is served, whose tokens that Google trusts; `acting` acts as a service account."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    gcp.pools = {f"//iam.googleapis.com/{PATH}": Pool(url, (AUDIENCE,))}
    gcp.users = {ACCOUNT: "system:serviceaccount:demo:acting"}
    identities = [identity(name, lifetime, serve={"dialects": ["gce"], **how}) for name, how in serve.items()]
    for one in identities:
        acting = {"serviceAccount": ACCOUNT, "iamEndpoint": gcp.url} if one["name"] == "acting" else {}
        one["provider"] = {"type": "gcp", "workloadIdentityProvider": PATH, "endpoint": gcp.url, **acting}
    metadata = {"listen": [f"127.0.0.1:{free_port()}"]}
    return configuration(*identities, issuer=issuer(url=url, listen=[f"127.0.0.1:{port}"]), metadata=metadata)


async def clients(daemon: Daemon, name: str, gcp: Gcp, *scopes: str) -> dict[str, Any]:
    modules = await asyncio.to_thread(node_path)
    resource = f"{gcp.url}/resource"
    sdks = {
        "python": [sys.executable, "-c", PYTHON, resource, json.dumps(scopes)],
        "node": ["node", str(SCRIPTS / "google.cjs"), resource],
    }
    more = {**TRAPS, "NODE_PATH": str(modules)}
    return {sdk: await started(daemon, taking(daemon, name, *command, via="endpoint"), more) for sdk, command in sdks.items()}


async def requests(daemon: Daemon, code: str = "200") -> float:
    metrics = await asyncio.to_thread(daemon.metrics)
    return metrics.get(f'wi_agent_metadata_requests_total{{code="{code}",dialect="gce"}}', 0.0)


@pytest.mark.timeout(240)
async def test_clients_go_on_across_rotations_by_port_and_by_default(daemon: Daemon) -> None:
    async with Gcp({}) as gcp:
        gcp.lifetime, gcp.generations = 30, 2
        config = chosen(gcp, "30s", itself={"default": True}, another={"port": free_port()})
        await asyncio.to_thread(daemon.start, config)
        asking = {(name, sdk): one for name in ("itself", "another") for sdk, one in (await clients(daemon, name, gcp, PLATFORM)).items()}
        seen: dict[tuple[str, str], set[str]] = {way: set() for way in asking}
        last = time.monotonic() + 150
        while min(len(ids) for ids in seen.values()) <= ROTATIONS:
            assert time.monotonic() < last, seen
            for (name, sdk), client in asking.items():
                said = await client.ask()
                assert said.get("principal") == f"system:serviceaccount:demo:{name}", (name, sdk, said)
                seen[name, sdk].add(said["jti"])
            await asyncio.sleep(1.0)
        for client in asking.values():
            await client.stop()
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_three_reads_take_one_token_and_a_restart_is_not_noticed(daemon: Daemon) -> None:
    async with Gcp({}) as gcp:
        await asyncio.to_thread(daemon.start, chosen(gcp, itself={"default": True}))
        asking = await clients(daemon, "itself", gcp)
        for client in asking.values():
            assert (await client.ask())["principal"] == "system:serviceaccount:demo:itself"
        first = await requests(daemon)
        assert first <= 5 + 1, "google-auth's ping, account, universe and token, with a project to spare; and one of Node's"
        for client in asking.values():
            assert {(await client.ask())["principal"] for _ in range(2)} == {"system:serviceaccount:demo:itself"}
        assert await requests(daemon) == first
        exchanges = len([path for path, _ in gcp.asked if path == "/v1/token"])
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        for client in [*asking.values(), *(await clients(daemon, "itself", gcp)).values()]:
            assert (await client.ask())["principal"] == "system:serviceaccount:demo:itself"
            await client.stop()
        assert len([path for path, _ in gcp.asked if path == "/v1/token"]) == exchanges, "adopted"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_scopes_of_a_clients_own_and_id_tokens_of_googles_only(daemon: Daemon) -> None:
    async with Gcp({}) as gcp:
        await asyncio.to_thread(daemon.start, chosen(gcp, acting={"default": True}, itself={"port": free_port()}))
        asking = await clients(daemon, "acting", gcp, "https://www.googleapis.com/auth/devstorage.read_only")
        said = await asking["python"].ask()
        assert said["principal"] == ACCOUNT, said
        assert {"https://www.googleapis.com/auth/devstorage.read_only"} in [set(one.scopes) for one in gcp.sessions.values()]
        for client in asking.values():
            await client.stop()
        fetching = [sys.executable, "-c", FETCH, "https://app.example"]
        found = await once(daemon, taking(daemon, "acting", *fetching, via="endpoint"), TRAPS)
        assert found.count(".") == 2, found
        refused = await once(daemon, taking(daemon, "itself", *fetching, via="endpoint"), TRAPS)
        assert "serviceAccount" in refused, refused
        assert "eyJ" not in refused
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("late", "sdks"), [(0.0, ("python", "node")), (3.5, ("python",))])
async def test_a_client_waits_for_the_first_token_or_comes_back_for_it(daemon: Daemon, late: float, sdks: tuple[str, ...]) -> None:
    """Node's waits 3 s for all its tries together; google-auth for each of five."""
    async with Gcp({}) as gcp:
        config = chosen(gcp, itself={"default": True})
        gcp.hanging = True
        config["refresh"] = {"timeout": "1s", "backoff": {"initial": "1s", "max": "1s"}}
        await asyncio.to_thread(daemon.start, config, wait=False)
        await asyncio.to_thread(until, lambda: daemon.log("agent.started"))
        asking = await clients(daemon, "itself", gcp)
        asked = [asyncio.ensure_future(asking[sdk].ask()) for sdk in sdks]
        await asyncio.sleep(late)
        gcp.hanging = False  # the next try, within two seconds, goes well
        said = await asyncio.gather(*asked)
        assert (await requests(daemon, "503") > 0) == (late > 2.5)
        assert [one.get("principal") for one in said] == ["system:serviceaccount:demo:itself"] * len(sdks), said
        for client in asking.values():
            await client.stop()
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(240)
async def test_gcloud_prints_a_token(daemon: Daemon) -> None:
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        pytest.xfail(
            "gcloud is in no package registry that a build could install it from: the one client that this cannot be shown with here"
        )
    async with Gcp({}) as gcp:
        await asyncio.to_thread(daemon.start, chosen(gcp, itself={"default": True}))
        printed = await once(daemon, taking(daemon, "itself", gcloud, "auth", "print-access-token", via="endpoint"), TRAPS)
        assert printed in gcp.sessions
        await asyncio.to_thread(daemon.stop)
