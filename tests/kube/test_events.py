"""What owners of ServiceAccounts are told of failing identities, over an API server; the recorder's clock is moved."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from agent.config.model import Identity
from agent.errors import NotReady, Rejected, Unavailable
from agent.model import Grant, Key
from agent.record import Profile
from agent.serviceaccounts import events as module
from agent.serviceaccounts.events import EventRecorder
from agent.settings import convert
from agent.sources.kubernetes import KubernetesSource
from agent.store import Store
from tests.fakes import FakeClock, FakeCredential, a_token
from tests.kube.proxy import Fault

REFUSED = Rejected("app: AWS says no", remedy="change the trust policy")


class Stage:
    def __init__(self, cluster, kube):
        self.cluster = cluster
        self.clock = FakeClock()
        self.store = Store()
        self.uids = {}
        self.identities = {}
        self.recorder = EventRecorder(
            self.store, cluster.toolbox(kube, self.clock), lambda: self.identities, lambda name: self.uids.get(name, "")
        )
        self.add("app")

    def add(self, name, *, follows=False, account="app"):
        source = {"type": "kubernetes", "serviceAccount": {"namespace": self.cluster.namespace, "name": account}}
        provider = {"type": "aws", "region": "eu-west-1", "roleArn": "arn:aws:iam::123456789012:role/x", "fromServiceAccount": follows}
        self.identities[name] = convert({"name": name, "source": source, "provider": provider}, Identity)
        self.store.enrol(Profile(name=name, digest="d", source="kubernetes", provider="aws", sinks=()))

    def fails(self, error=REFUSED, name="app", times=1):
        for _ in range(times):
            self.store.attempted(Key(name), error, self.clock.now())

    def works(self, name="app", token=None):
        now = self.clock.now()
        self.store.granted(Grant(key=Key(name), digest="d", token=token or a_token(now, 3600, "t"), credential=FakeCredential()))
        self.store.attempted(Key(name), None, now)

    async def pause(self, seconds=2.0):
        await self.clock.advance(seconds)
        await asyncio.sleep(0.15)  # real time: a request has to be answered, if there is one
        await self.clock.advance(0.1)

    async def events(self, namespace=None):
        found = await self.cluster.admin("GET", f"/api/v1/namespaces/{namespace or self.cluster.namespace}/events")
        return sorted(found["items"], key=lambda one: int(one["metadata"]["resourceVersion"]))

    async def until(self, count):
        async with asyncio.timeout(60):
            while len(found := await self.events()) < count:
                await asyncio.sleep(0.02)
        return found


@asynccontextmanager
async def staged(cluster, **environ):
    async with cluster.clients(**environ) as kube:
        stage = Stage(cluster, kube)
        task = asyncio.ensure_future(stage.recorder.run())
        try:
            await stage.pause(0)
            yield stage
        finally:
            task.cancel()
            await asyncio.wait({task})


@pytest.fixture
async def stage(cluster):
    await cluster.allow("events.yaml", "app")
    async with staged(cluster) as stage:
        yield stage


async def test_a_failure_and_its_end_are_one_event_each(stage):
    stage.uids["app"] = (await stage.cluster.admin("GET", f"/api/v1/namespaces/{stage.cluster.namespace}/serviceaccounts/app"))["metadata"][
        "uid"
    ]
    for _ in range(5):
        stage.fails()
        await stage.pause()
    (failed,) = await stage.until(1)
    assert failed["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "namespace": stage.cluster.namespace,
        "name": "app",
        "uid": stage.uids["app"],
    }
    assert (failed["type"], failed["reason"], failed["count"]) == ("Warning", "IdentityFailed", 1)
    assert failed["message"] == "app: AWS says no (change the trust policy)"
    assert failed["source"]["component"] == failed["reportingComponent"] == "workload-identity-agent"
    stage.works()
    await stage.pause()
    _, recovered = await stage.until(2)
    assert (recovered["type"], recovered["reason"], recovered["message"]) == ("Normal", "IdentityRecovered", "app: works again")


async def test_what_comes_and_goes_is_told_in_five_minutes_and_counted(stage):
    for told in (1, 2, 2, 2, 2, 2):
        stage.fails()
        await stage.pause()
        await stage.until(told)
        stage.works()
        await stage.pause()
        await stage.until(2)
    stage.fails()
    await stage.pause()
    assert [one["reason"] for one in await stage.until(2)] == ["IdentityFailed", "IdentityRecovered"]
    await stage.pause(400)
    last = (await stage.until(3))[-1]
    assert (last["reason"], last["count"]) == ("IdentityFailed", 6)


@pytest.mark.parametrize(("error", "times", "told"), [(Unavailable("away"), 2, 0), (Unavailable("away"), 3, 1), (NotReady("soon"), 9, 0)])
async def test_what_may_pass_by_itself_is_given_time_to(stage, error, times, told):
    stage.fails(error, times=times)
    await stage.pause()
    assert len(await stage.until(told)) == told


async def test_without_the_right_there_are_none_and_the_log_says_so_once(cluster, caplog, capsys):
    async with staged(cluster) as stage:
        for name in ("app", "second", "third"):
            stage.add(name)
            stage.fails(name=name)
            await stage.pause()
        stage.works()
        await stage.pause(400)
        assert await stage.events() == []
        assert cluster.proxy.count("/events") == 1
    assert capsys.readouterr().out.count("events.not_written") == 1


async def test_a_right_granted_later_is_used_within_ten_minutes(cluster, capsys):
    async with staged(cluster) as stage:
        stage.fails()
        await stage.pause()
        assert cluster.proxy.count("/events") == 1
        await cluster.allow("events.yaml", "app")
        await asyncio.sleep(0.2)  # the real server's authorizer learns of it
        for _ in range(21):
            await stage.pause(30)
        (event,) = await stage.until(1)
        assert event["reason"] == "IdentityFailed"
    assert capsys.readouterr().out.count("events.not_written") == 1


async def test_an_event_of_a_literal_identity_has_the_uid_of_its_token(stage):
    account = await stage.cluster.admin("GET", f"/api/v1/namespaces/{stage.cluster.namespace}/serviceaccounts/app")
    async with stage.cluster.clients() as kube:
        source = KubernetesSource(stage.identities["app"].source, "app", stage.cluster.toolbox(kube))
        stage.works(token=await source.fetch(["a"]))
    stage.fails()
    await stage.pause()
    (event,) = await stage.until(1)
    assert event["involvedObject"]["uid"] == account["metadata"]["uid"]


async def test_what_the_api_server_cannot_take_now_is_told_later_and_only_if_it_is_still_so(stage):
    stage.cluster.proxy.always = Fault(status=503)
    stage.add("second")
    stage.fails()
    stage.fails(name="second")
    await stage.pause()
    stage.works("second")
    await stage.pause()
    assert stage.cluster.proxy.count("/events") == 2, "no storm"
    stage.cluster.proxy.always = None
    await stage.pause(35)
    (event,) = await stage.until(1)
    assert event["message"].startswith("app: ")


async def test_of_a_serviceaccount_that_is_not_there_the_agents_own_pod_is_told(cluster):
    await cluster.allow("events.yaml", "app", namespace=cluster.home)
    async with staged(cluster, POD_NAME="agent-0", POD_NAMESPACE=cluster.home, POD_UID="u-0") as stage:
        stage.add("gone", follows=True)
        stage.fails(name="gone")
        await stage.pause()
        async with asyncio.timeout(60):
            while not (found := await stage.events(cluster.home)):
                await asyncio.sleep(0.02)
    assert found[0]["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": cluster.home, "name": "agent-0", "uid": "u-0"}


async def test_a_long_message_is_cut_and_identities_elsewhere_have_no_event(stage):
    source = {"type": "file", "path": "/x"}
    stage.identities["file"] = convert({"name": "file", "source": source, "provider": {"type": "generic", "audiences": ["a"]}}, Identity)
    stage.store.enrol(Profile(name="file", digest="d", source="file", provider="generic", sinks=()))
    stage.fails(name="file")
    stage.fails(Rejected("x" * 5000))
    await stage.pause()
    (event,) = await stage.until(1)
    assert len(event["message"]) == module.MAX_MESSAGE_CHARACTERS
