"""`once`, for an identity that is whoever its ServiceAccount says."""

import asyncio

import pytest

from agent.app import once
from tests.kube.proxy import Fault
from tests.kube.scene import ANNOTATION, ROLE


@pytest.fixture
def config(scene, monkeypatch):
    """As an init container's, but for the kubeconfig in the place of a pod."""
    source = {
        "type": "kubernetes",
        "serviceAccount": {"namespace": scene.cluster.namespace, "name": "app"},
        "kubeconfig": scene.cluster.kubeconfig({"tokenFile": "serviceaccount/token"}),
    }
    monkeypatch.setattr("agent.app._collect", lambda: None)  # this process goes on
    return scene.config(source=source)


async def test_it_waits_until_the_serviceaccount_says_who_it_is_and_delivers(scene, config):
    delivering = asyncio.ensure_future(once(config, {}, 20.0))
    async with asyncio.timeout(60):
        while not scene.cluster.proxy.count("watch=true"):
            await asyncio.sleep(0.01)
    assert not delivering.done()
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    assert await delivering == []
    assert scene.written == "one"
    assert await once(config, {}, 20.0) == []
    assert scene.cloud.asked == ["one"], "what an earlier run left is still good"


async def test_it_is_not_done_before_there_is_something(scene, config):
    """Between having seen the ServiceAccount and having been granted something there is no moment at which nothing is owed."""
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    scene.cluster.proxy.always = Fault(status=503, match="/token")
    [reason] = await once(config, {}, 1.0)
    assert "503" in reason
    assert scene.cloud.asked == []


@pytest.mark.parametrize(
    ("how", "reason"), [("no role", "has no annotation"), ("deleted", "there is no ServiceAccount"), ("created anew", "503")]
)
async def test_what_an_earlier_run_left_for_who_is_gone_is_taken_away_and_the_reason_is_said(scene, config, how, reason):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    assert await once(config, {}, 20.0) == []
    if how == "no role":
        await scene.cluster.annotate("app", {ANNOTATION: None})
    else:
        await scene.cluster.delete("ServiceAccount", "app")
    if how == "created anew":
        await scene.cluster.account("app", annotations={ANNOTATION: ROLE + "one"})
    scene.cluster.proxy.always = Fault(status=503, match="/token")
    [said] = await once(config, {}, 1.0)
    assert reason in said
    assert scene.written == ""


async def test_while_nothing_can_be_seen_what_an_earlier_run_left_stays(scene, config):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    assert await once(config, {}, 20.0) == []
    scene.cluster.proxy.always = Fault(status=503)
    [reason] = await once(config, {}, 0.5)
    assert "503 to watch serviceaccounts of app" in reason
    assert scene.written == "one"
