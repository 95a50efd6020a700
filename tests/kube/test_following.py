"""Identities that are whoever their ServiceAccount says, over an API server; the cloud is a stand-in that asks nothing."""

import asyncio
import os

import pytest
from msgspec.structs import replace

from agent.config.model import Config, Tenancy
from agent.config.tenancy import resolved
from agent.model import Key
from agent.settings import convert
from agent.store import Store
from tests.kube.proxy import Fault
from tests.kube.scene import ANNOTATION, ROLE, Cloud, Scene


async def test_an_annotation_says_who_it_is_and_another_one_is_followed_within_a_second(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
        await scene.cluster.annotate("app", {ANNOTATION: ROLE + "two"})
        await scene.until("two", within=1)
        await scene.cluster.annotate("app", {"unrelated": "x"})
        await scene.cluster.annotate("app", {ANNOTATION: None})
        await scene.until("", within=1)
        assert scene.state == "missing"
        assert f"ServiceAccount {scene.cluster.namespace}/app has no annotation {ANNOTATION}" in scene.failure
        await scene.cluster.annotate("app", {ANNOTATION: ROLE + "three"})
        await scene.until("three")
    assert scene.cloud.asked == ["one", "two", "three"], "each once, and none for what is unrelated"


async def test_while_the_next_principal_cannot_be_had_nothing_of_the_old_remains(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
        scene.cluster.proxy.always = Fault(status=503, match="/token")
        await scene.cluster.annotate("app", {ANNOTATION: ROLE + "two"})
        await scene.until("", within=1)
        scene.cluster.proxy.always = None
        await scene.until("two", within=20)


async def test_deleted_and_created_anew_it_is_another(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
        await scene.cluster.delete("ServiceAccount", "app")
        await scene.until("", within=1)
        assert scene.state == "missing"
        assert "there is no ServiceAccount" in scene.failure
        await scene.cluster.account("app", annotations={ANNOTATION: ROLE + "one"})
        await scene.until("one")
        assert scene.cloud.asked == ["one", "one"], "nothing of the first is used for the second"


async def test_created_anew_behind_the_agents_back_it_is_another_too(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
        await scene.cluster.proxy.down()
        await scene.cluster.delete("ServiceAccount", "app")
        await scene.cluster.account("app", annotations={ANNOTATION: ROLE + "one"})
        assert scene.served == "session-of-one", "what was seen last holds"
        await scene.cluster.proxy.up()
        async with asyncio.timeout(60):
            while len(scene.cloud.asked) < 2:
                await asyncio.sleep(0.01)
        await scene.until("one")


async def test_a_restart_takes_over_only_what_is_of_the_same_principal_and_uid(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
    scene.store = Store()
    async with scene.running():
        await scene.until("one")
    assert scene.cloud.asked == ["one"], "adopted"
    await scene.cluster.delete("ServiceAccount", "app")
    await scene.cluster.account("app", annotations={ANNOTATION: ROLE + "one"})
    scene.cluster.proxy.always = Fault(status=503, match="/token")
    scene.store = Store()
    async with scene.running():
        await scene.until("", within=5)
        scene.cluster.proxy.always = None
        await scene.until("one", within=20)
    await scene.cluster.delete("ServiceAccount", "app")
    scene.store = Store()
    assert scene.written == "one"
    async with scene.running():
        await scene.until("", within=5)
        assert scene.state == "missing"


async def test_before_it_was_seen_nothing_is_adopted_and_nothing_withdrawn(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
    scene.store = Store()
    await scene.cluster.proxy.down()
    async with scene.running():
        async with asyncio.timeout(60):
            while "could not be reached" not in scene.failure:
                await asyncio.sleep(0.01)
        assert (scene.served, scene.written, scene.state) == (None, "one", "missing")
        await scene.cluster.proxy.up()
        await scene.until("one", within=10)
    assert scene.cloud.asked == ["one"]


@pytest.mark.parametrize("serve", [{}, {"dialects": ["container"]}], ids=["written", "served"])
@pytest.mark.parametrize("how", ["removed", "moved"])
async def test_what_an_earlier_process_left_goes_with_the_identity_though_it_was_never_seen(scene, serve, how):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    elsewhere = [{"type": "files", "directory": str(scene.folder / "elsewhere")}]
    async with scene.running(scene.config(serve=serve)):
        async with asyncio.timeout(60):
            while scene.written != "one":
                await asyncio.sleep(0.01)
    scene.store = Store()
    await scene.cluster.proxy.down()
    async with scene.running(scene.config(serve=serve)):
        await scene.supervisor.apply(
            convert({"identities": []}, Config) if how == "removed" else scene.config(serve=serve, sinks=elsewhere)
        )
        assert list((scene.folder / "app").rglob("*")) == []


async def test_who_moves_while_nothing_can_be_seen_keeps_what_it_has_until_there_is_something_new(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    elsewhere = [{"type": "files", "directory": str(scene.folder / "elsewhere"), "grace": "0s"}]
    async with scene.running():
        await scene.until("one")
        await scene.cluster.proxy.down()
        await scene.supervisor.apply(scene.config(provider={"duration": "30m"}))
        await scene.supervisor.apply(scene.config(provider={"duration": "30m"}, sinks=elsewhere))
        assert (scene.served, scene.written) == ("session-of-one", "one")
        await scene.cluster.proxy.up()
        async with asyncio.timeout(60):
            while not (scene.folder / "elsewhere" / "config").exists():
                assert scene.written == "one"
                await asyncio.sleep(0.01)
            while list(os.scandir(scene.folder / "app")):
                await asyncio.sleep(0.01)


async def test_settings_that_the_operator_changes_take_over_without_a_gap(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
        scene.cluster.proxy.always = Fault(status=503, match="/token")
        await scene.supervisor.apply(scene.config(provider={"duration": "30m"}))
        await asyncio.sleep(0.3)
        assert (scene.served, scene.written) == ("session-of-one", "one")
        await scene.cluster.annotate("app", {ANNOTATION: ROLE + "two"})
        await scene.until("", within=1)
        scene.cluster.proxy.always = None
        await scene.until("two", within=20)
        await scene.supervisor.apply(convert({"identities": []}, Config))
        assert scene.store.record(Key("app")) is None
        await scene.until("", within=1)


@pytest.mark.parametrize("how", ["annotated", "created anew", "deleted", "the same"])
async def test_what_changes_while_the_operator_changes_settings_is_not_kept_for_being_the_operators(scene, how):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
        await scene.cluster.proxy.down()
        await scene.supervisor.apply(scene.config(provider={"duration": "30m"}))
        if how == "annotated":
            await scene.cluster.annotate("app", {ANNOTATION: ROLE + "two"})
        elif how != "the same":
            await scene.cluster.delete("ServiceAccount", "app")
        if how == "created anew":
            await scene.cluster.account("app", annotations={ANNOTATION: ROLE + "one"})
        assert (scene.served, scene.written) == ("session-of-one", "one")
        scene.cluster.proxy.always = Fault(status=503, match="/token")
        await scene.cluster.proxy.up()
        if how == "the same":
            async with asyncio.timeout(60):
                while scene.supervisor.running("app") is None:
                    await asyncio.sleep(0.01)
            assert (scene.served, scene.written) == ("session-of-one", "one")
        else:
            await scene.until("", within=10)


async def test_an_operator_who_writes_down_the_default_has_not_chosen_another_serviceaccount(scene):
    """What the operator changes is kept until there is something new; that the ServiceAccount is another is no change of theirs."""
    default = scene.config(source={"type": "kubernetes", "serviceAccount": {"namespace": scene.cluster.namespace}})
    tenancy = Tenancy(default_service_account="app")
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running(resolved(replace(default, tenancy=tenancy))):
        await scene.until("one")
        await scene.cluster.proxy.down()
        await scene.supervisor.apply(replace(scene.config(), tenancy=tenancy))
        await scene.cluster.delete("ServiceAccount", "app")
        await scene.cluster.account("app", annotations={ANNOTATION: ROLE + "one"})
        scene.cluster.proxy.always = Fault(status=503, match="/token")
        await scene.cluster.proxy.up()
        await scene.until("", within=10)


@pytest.mark.parametrize(
    "hostile",
    [
        "arn:aws:iam::123456789012:role/x\n",
        "../../etc",
        "arn:aws:iam::123456789012:role/\u202ex",
        "x" * 65536,
        "https://evil.example/",
        ROLE,
    ],
)
async def test_a_hostile_annotation_is_refused_and_named_and_leaves_nothing(scene, hostile, caplog):
    await scene.cluster.annotate("app", {ANNOTATION: hostile})
    async with scene.running():
        async with asyncio.timeout(60):
            while f"its annotation {ANNOTATION} cannot be used" not in scene.failure:
                await asyncio.sleep(0.01)
        assert len(scene.failure) < 400
        assert scene.failure.isprintable()
        async with asyncio.timeout(60):
            while sorted(path.name for path in scene.folder.rglob("*")) not in (
                ["app", "authorization"],
                ["..lock", "app", "authorization"],
            ):  # what an earlier process left
                await asyncio.sleep(0.01)
        assert (scene.state, scene.served) == ("missing", None)
    assert scene.cloud.asked == []
    assert scene.cluster.proxy.count("/token") == 0, "not even a token is asked for"


async def test_endpoints_proxies_and_cas_in_annotations_are_not_looked_at(scene):
    evil = {f"eks.amazonaws.com/{name}": "http://127.0.0.1:9" for name in ("endpoint", "proxy", "ca-file", "sts-regional-endpoints")}
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one", **evil})
    async with scene.running():
        await scene.until("one")


async def test_without_the_right_to_watch_the_role_to_apply_is_named(cluster, tmp_path):
    async with Cloud() as cloud:
        scene = Scene(cluster, tmp_path, cloud)
        async with scene.running():
            async with asyncio.timeout(60):
                while "may not" not in scene.failure:
                    await asyncio.sleep(0.01)
            assert scene.state == "missing"
            assert f"{cluster.agent} may not" in scene.failure
            assert f"in namespace {cluster.namespace}" in scene.failure


async def test_a_right_that_is_taken_away_is_said_and_what_was_seen_last_holds(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
        await scene.cluster.delete("RoleBinding", "wi-agent-watch-app")
        await asyncio.sleep(0.2)
        scene.cluster.proxy.cut()
        record = scene.store.record(Key("app"))
        async with asyncio.timeout(60):
            while "may not watch serviceaccounts" not in record.account.note():
                await asyncio.sleep(0.01)
        assert (scene.served, scene.written, scene.state) == ("session-of-one", "one", "fresh")


async def test_after_a_cut_it_is_seen_again_and_nothing_is_left_of_the_note(scene):
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running():
        await scene.until("one")
        record = scene.store.record(Key("app"))
        scene.cluster.proxy.cut()
        async with asyncio.timeout(60):
            while "cannot be seen" not in record.account.note():
                await asyncio.sleep(0.01)
            while record.account.note():
                await asyncio.sleep(0.01)
        assert scene.cloud.asked == ["one"]
