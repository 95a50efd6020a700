"""What clients present, of an identity whose ServiceAccount comes, changes and goes: made up by the agent, read once by SDKs."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from agent.config.model import Config
from agent.settings import convert
from agent.store import Store
from tests.kube.proxy import Fault
from tests.kube.scene import ANNOTATION, ROLE
from tests.serving.endpoint import endpoint


def lying(scene, directory="app"):
    """What a workload reads there; None where it reads nothing."""
    file = scene.folder / directory / "authorization"
    return file.read_text() if file.exists() else None


@asynccontextmanager
async def watched(scene):
    """Fails where the file is gone, or another, at any moment between."""
    first, moments = lying(scene), []

    async def watch():
        while True:
            moments.append(lying(scene))
            await asyncio.sleep(0.001)

    task = asyncio.ensure_future(watch())
    try:
        yield first
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert first
    assert len(moments) > 10
    assert set(moments) == {first}


async def until_failing(scene, reason):
    async with asyncio.timeout(60):
        while reason not in scene.failure:
            await asyncio.sleep(0.01)


async def test_it_lies_there_before_the_serviceaccount_has_been_seen_and_who_has_it_is_told_why(scene):
    await scene.cluster.proxy.down()
    async with scene.running(), endpoint(scene.store, patience=0.05) as listening:
        first = lying(scene)
        await until_failing(scene, "could not be reached")
        reply = await listening.ask("/aws/app/credentials", authorization=first)
        assert (reply.status, reply.headers.get("retry-after")) == (503, "1")
        assert (await listening.ask("/aws/app/credentials", authorization="of-nobody")).status == 401
        await scene.cluster.proxy.up()
        await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
        await scene.until("one", within=10)
        assert (await listening.ask("/aws/app/credentials", authorization=first)).status == 200
        assert lying(scene) == first


async def test_it_is_the_same_at_every_moment_whoever_the_identity_is(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running(), endpoint(scene.store, patience=0.05) as listening:
        await scene.until("one")
        async with watched(scene) as first:
            await scene.cluster.annotate("app", {ANNOTATION: ROLE + "two"})
            await scene.until("two")
            await scene.cluster.annotate("app", {ANNOTATION: None})
            await scene.until("")
            assert (await listening.ask("/aws/app/credentials", authorization=first)).status == 503
            await scene.cluster.annotate("app", {ANNOTATION: ROLE + "three"})
            await scene.until("three")
            await scene.cluster.delete("ServiceAccount", "app")
            await scene.until("")
            assert (await listening.ask("/aws/app/credentials", authorization=first)).status == 503
            await scene.cluster.account("app", annotations={ANNOTATION: ROLE + "four"})
            await scene.until("four")
            assert (await listening.ask("/aws/app/credentials", authorization=first)).status == 200


@pytest.mark.parametrize("how", ["as it was", "no role", "deleted", "created anew"])
async def test_a_restart_keeps_it_whatever_has_become_of_the_serviceaccount(scene, how):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
    if how == "no role":
        await scene.cluster.annotate("app", {ANNOTATION: None})
    elif how != "as it was":
        await scene.cluster.delete("ServiceAccount", "app")
    if how == "created anew":
        await scene.cluster.account("app", annotations={ANNOTATION: ROLE + "two"})
    async with watched(scene) as first:
        for _ in range(2):
            scene.store = Store()
            async with scene.running(), endpoint(scene.store, patience=0.05) as listening:
                await scene.until({"as it was": "one", "created anew": "two"}.get(how, ""))
                if scene.written == "":
                    await until_failing(scene, "ServiceAccount")
                reply = await listening.ask("/aws/app/credentials", authorization=first)
                assert reply.status == (200 if scene.written else 503)


async def test_it_goes_with_the_identity_and_the_next_of_the_name_has_another(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
        first = lying(scene)
        await scene.cluster.annotate("app", {ANNOTATION: None})
        await scene.until("")
        await scene.supervisor.apply(convert({"identities": []}, Config))
        assert lying(scene) is None
        await scene.supervisor.apply(scene.config())
        second = lying(scene)
        assert second not in {None, first}
        await scene.supervisor.apply(convert({"identities": []}, Config))
        assert lying(scene) is None


@pytest.mark.parametrize("how", ["running", "nobody"])
async def test_where_the_operator_moves_the_files_it_moves_along(scene, how):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    elsewhere = [{"type": "files", "directory": str(scene.folder / "elsewhere"), "grace": "0s"}]
    async with scene.running(), endpoint(scene.store, patience=0.05) as listening:
        await scene.until("one")
        first = lying(scene)
        if how == "nobody":
            await scene.cluster.annotate("app", {ANNOTATION: None})
            await scene.until("")
        scene.cluster.proxy.always = Fault(status=503, match="/token")
        await scene.supervisor.apply(scene.config(sinks=elsewhere))
        assert lying(scene, "elsewhere") == first, "before anything is granted anew"
        assert lying(scene) == (first if how == "running" else None), "what still lies there goes once the new is delivered"
        scene.cluster.proxy.always = None
        await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
        async with asyncio.timeout(60):
            while lying(scene) or not scene.served or not (scene.folder / "elsewhere" / "token").exists():
                await asyncio.sleep(0.01)
        assert lying(scene, "elsewhere") == first
        assert (await listening.ask("/aws/app/credentials", authorization=first)).status == 200
