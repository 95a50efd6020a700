"""What is said of a ServiceAccount that is not there: to who named it, and to who is held to `tenancy.defaultServiceAccount`."""

import asyncio

import pytest
from msgspec.structs import replace

from agent.config.model import Tenancy
from agent.config.tenancy import resolved
from agent.errors import Rejected
from agent.settings import convert
from agent.sources.kubernetes import KubernetesSource

LOCKED = "tenancy.defaultServiceAccount locks every identity down to it that names none"
ASK = "reach out to the cluster's administrator"


def locked(scene, name):
    """Named by the identity, or where it names none by the operator, to the same effect."""
    account = {"namespace": scene.cluster.namespace, **({"name": name} if name else {})}
    config = scene.config(source={"type": "kubernetes", "serviceAccount": account})
    tenancy = convert({"defaultServiceAccount": "missing", "namespaces": [scene.cluster.namespace]}, Tenancy)
    return resolved(replace(config, tenancy=tenancy))


@pytest.mark.parametrize("name", ["", "missing"])
async def test_a_token_of_the_default_one_that_is_not_there_is_the_administrators_matter(scene, name):
    await scene.cluster.allow("token.yaml", "missing")
    async with scene.cluster.clients() as kube:
        [identity] = locked(scene, name).identities
        source = KubernetesSource(identity.source, "app", scene.cluster.toolbox(kube))
        with pytest.raises(Rejected) as caught:
            await source.fetch(["a"])
    judge(scene, caught.value.message, caught.value.remedy, by_default=not name)


@pytest.mark.parametrize("name", ["", "missing"])
async def test_so_it_is_where_it_should_say_who_the_identity_is(scene, name):
    await scene.cluster.allow("watch.yaml", "missing")
    async with scene.running(locked(scene, name)):
        async with asyncio.timeout(60):
            while "there is no ServiceAccount" not in scene.failure:
                await asyncio.sleep(0.01)
        judge(scene, scene.failure, scene.remedy, by_default=not name)
        assert scene.state == "missing"


def judge(scene, message, remedy, *, by_default):
    assert f"there is no ServiceAccount {scene.cluster.namespace}/missing" in message
    assert (LOCKED in message, ASK in remedy) == (by_default, by_default)
    assert (f"kubectl create serviceaccount -n {scene.cluster.namespace} missing" in remedy) == (not by_default)
