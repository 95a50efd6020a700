"""google-auth, google-auth-library and the gcp-metadata below it with a metadata server, unmodified.

They have nothing but what `env` prints, and of this test's own only the place of Node's modules.
"""

import asyncio
import json
import shutil
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bench.subjects import free_port
from tests.e2e.client import Client, once, started, taking
from tests.e2e.daemon import Daemon, configuration, identity, issuer
from tests.e2e.late import PATIENT, QUICK, answered, connected, hold, in_time, running
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


async def clients(daemon: Daemon, name: str, gcp: Gcp, *scopes: str) -> dict[str, Client]:
    """By SDK."""
    modules = await asyncio.to_thread(node_path)
    resource = f"{gcp.url}/resource"
    sdks = {
        "python": [sys.executable, "-c", PYTHON, resource, json.dumps(scopes)],
        "node": ["node", str(SCRIPTS / "google.cjs"), resource],
        "below": ["node", str(SCRIPTS / "gcp_metadata.cjs"), resource],
    }
    more = {**TRAPS, "NODE_PATH": str(modules)}
    made = (started(daemon, taking(daemon, name, *command, via="endpoint"), more) for command in sdks.values())
    return dict(zip(sdks, await asyncio.gather(*made), strict=True))


def gcloud() -> str:
    """Where it is."""
    found = shutil.which("gcloud")
    if found is None:
        pytest.xfail(
            "gcloud is in no package registry that a build could install it from: the one client that this cannot be shown with here"
        )
    return found


async def printed(daemon: Daemon) -> str:
    """The token that gcloud takes, in a new process."""
    return await once(daemon, taking(daemon, "itself", gcloud(), "auth", "print-access-token", via="endpoint"), TRAPS)


@pytest.mark.timeout(240)
async def test_clients_go_on_across_rotations_and_a_restart_by_port_and_by_default(daemon: Daemon) -> None:
    async with Gcp({}) as gcp:
        gcp.lifetime, gcp.generations = 30, 2
        config = chosen(gcp, "30s", itself={"default": True}, another={"port": free_port()})
        await asyncio.to_thread(daemon.start, config)
        asking = {(name, sdk): one for name in ("itself", "another") for sdk, one in (await clients(daemon, name, gcp, PLATFORM)).items()}
        seen: dict[tuple[str, str], set[str]] = {way: set() for way in asking}
        tokens: list[str] = []
        last = time.monotonic() + 150
        while min(len(ids) for ids in seen.values()) <= ROTATIONS:
            assert time.monotonic() < last, seen
            for (name, sdk), client in asking.items():
                said = await client.ask()
                assert said.get("principal") == f"system:serviceaccount:demo:{name}", (name, sdk, said)
                seen[name, sdk].add(said["jti"])
            if shutil.which("gcloud") and len(tokens) < len(seen["itself", "python"]):
                tokens.append(await printed(daemon))
            await asyncio.sleep(1.0)
        assert set(tokens) <= set(gcp.sessions)
        assert not tokens or len(set(tokens)) >= ROTATIONS, "gcloud's, one after each rotation"
        await asyncio.to_thread(daemon.stop)
        await asyncio.to_thread(daemon.start)
        for (name, _), client in asking.items():
            assert (await client.ask()).get("principal") == f"system:serviceaccount:demo:{name}"
            await client.stop()
        assert (await answered(daemon, "gce"))["200"] >= len(asking), "all asked this agent"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_three_reads_take_one_token_and_a_restart_is_not_noticed(daemon: Daemon) -> None:
    async with Gcp({}) as gcp:
        await asyncio.to_thread(daemon.start, chosen(gcp, itself={"default": True}))
        asking = await clients(daemon, "itself", gcp)
        assert await answered(daemon, "gce") == {"200": 2}, "google-auth's ping and project"
        for sdk, so_far in {"python": 2 + 3, "node": 6, "below": 9}.items():
            assert {(await asking[sdk].ask())["principal"] for _ in range(3)} == {"system:serviceaccount:demo:itself"}
            assert await answered(daemon, "gce") == {"200": so_far}, (
                "google-auth asks for account, universe and token; the last keeps nothing"
            )
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
async def test_a_first_token_that_is_late_is_waited_for_within_the_first_request(daemon: Daemon) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack, Gcp({}) as gcp:
            go = hold(gcp)
            await running(daemon, {**chosen(gcp, itself={"default": True}), "refresh": PATIENT})
            asking = await clients(daemon, "itself", gcp)
            for client in asking.values():
                stack.push_async_callback(client.stop)
            reads = [asyncio.ensure_future(client.ask()) for client in asking.values()]
            last = time.monotonic() + 20
            while await answered(daemon, "gce") != {"200": 3}:  # all that google-auth asks before the token
                assert time.monotonic() < last
                await asyncio.sleep(0.01)
            await connected(daemon, len(asking))
            assert not gcp.sessions
            go.set()
            said = await asyncio.gather(*reads)
            assert [one.get("principal") for one in said] == ["system:serviceaccount:demo:itself"] * len(said), said
            assert await answered(daemon, "gce") == {"200": 4 + len(asking)}, (
                "one token each and google-auth's universe; nobody was sent away"
            )
            assert len(gcp.sessions) == 1
            await asyncio.to_thread(daemon.stop)

    await in_time(daemon, story)


@pytest.mark.timeout(120)
async def test_clients_sit_out_503_while_google_is_away_or_find_the_token_when_they_ask_again(daemon: Daemon) -> None:
    """google-auth asks five times; Node's gives up after 3 s for all its tries together."""
    async with AsyncExitStack() as stack, Gcp({}) as gcp:
        gcp.hanging = True
        await running(daemon, {**chosen(gcp, itself={"default": True}), "refresh": QUICK})
        asking = await clients(daemon, "itself", gcp)
        for client in asking.values():
            stack.push_async_callback(client.stop)
        reads = {sdk: asyncio.ensure_future(client.ask()) for sdk, client in asking.items()}
        last = time.monotonic() + 20
        while (await answered(daemon, "gce")).get("503", 0) < len(asking):
            assert time.monotonic() < last
            await asyncio.sleep(0.05)
        for sdk in ("node", "below"):
            assert "error" in await reads[sdk]
        gcp.hanging = False  # the next try, within two seconds, goes well
        assert (await reads["python"]).get("principal") == "system:serviceaccount:demo:itself", "in the same call"
        for client in asking.values():
            assert (await client.ask()).get("principal") == "system:serviceaccount:demo:itself"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_clients_that_ask_first_are_served_by_an_agent_that_starts_a_moment_later(daemon: Daemon) -> None:
    async with AsyncExitStack() as stack, Gcp({}) as gcp:
        config = chosen(gcp, itself={"default": True})
        await asyncio.to_thread(daemon.start, config)
        asking = await clients(daemon, "itself", gcp)
        for client in asking.values():
            stack.push_async_callback(client.stop)
        await asyncio.to_thread(daemon.stop)
        answers = 0.0
        for tries_left in (2, 1, 0):  # a busy machine may need longer to start a process than a client is patient
            reads = [asyncio.ensure_future(client.ask()) for client in asking.values()]
            await asyncio.sleep(0.3)  # Node's tries for two seconds, of which the agent needs a part to start
            await running(daemon, config)
            said = await asyncio.gather(*reads)
            answers += (await answered(daemon, "gce")).get("200", 0)
            if not any("error" in one for one in said) or not tries_left:
                break
            await asyncio.to_thread(daemon.stop)
        assert [one.get("principal") for one in said] == ["system:serviceaccount:demo:itself"] * len(said), said
        assert answers >= len(asking), "each by an agent that was not there at first"
        await asyncio.to_thread(daemon.stop)


@pytest.mark.timeout(120)
async def test_gcloud_waits_for_a_first_token_that_is_late_and_prints_it_before_and_after_a_restart(daemon: Daemon) -> None:
    gcloud()

    async def story() -> None:
        async with Gcp({}) as gcp:
            go = hold(gcp)
            await running(daemon, {**chosen(gcp, itself={"default": True}), "refresh": PATIENT})
            shutil.rmtree(daemon.folder / ".config", ignore_errors=True)
            reading = asyncio.ensure_future(printed(daemon))
            last = time.monotonic() + 30
            while await answered(daemon, "gce") != {"200": 5, "404": 1}:  # what it asks once, and keeps; there is no email
                assert time.monotonic() < last
                await asyncio.sleep(0.01)
            await connected(daemon, 1)
            assert not gcp.sessions
            go.set()
            assert await reading in gcp.sessions
            assert await answered(daemon, "gce") == {"200": 6, "404": 1}, "the token, and nobody was sent away"
            assert [await printed(daemon) for _ in range(2)] == list(gcp.sessions) * 2
            assert await answered(daemon, "gce") == {"200": 6 + 2 * 2, "404": 1}, "the account and the token, for each command"
            await asyncio.to_thread(daemon.stop)
            await asyncio.to_thread(daemon.start)
            assert [await printed(daemon)] == list(gcp.sessions), "adopted"
            await asyncio.to_thread(daemon.stop)

    await in_time(daemon, story)


@pytest.mark.timeout(120)
async def test_gcloud_sits_out_503_while_google_is_away(daemon: Daemon) -> None:
    gcloud()
    async with Gcp({}) as gcp:
        gcp.hanging = True
        await running(daemon, {**chosen(gcp, itself={"default": True}), "refresh": QUICK})
        reading = asyncio.ensure_future(printed(daemon))
        last = time.monotonic() + 30
        while not (await answered(daemon, "gce")).get("503", 0):
            assert time.monotonic() < last
            await asyncio.sleep(0.05)
        gcp.hanging = False
        assert await reading in gcp.sessions
        await asyncio.to_thread(daemon.stop)
