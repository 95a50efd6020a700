import asyncio
from contextlib import asynccontextmanager
from random import Random
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.clock import WallClock
from agent.kube.refusals import Question
from agent.kube.watch import Watch
from tests.fakes import FakeClock
from tests.kube.proxy import Fault


class Watching:
    """What a watch has said so far."""

    def __init__(self, watch):
        self._queue = asyncio.Queue()
        self.resumed = 0
        self._watch = watch

    @property
    def version(self):
        """From which it would go on now."""
        return int(self._watch._version or 0)

    async def run(self):
        async for event in self._watch.events():
            if event.kind == "resumed":  # that it goes on where it was shows in what it says next
                self.resumed += 1
                continue
            self._queue.put_nowait(event)

    async def next(self, patience=5.0):
        async with asyncio.timeout(patience):
            return await self._queue.get()

    async def next_about(self, kind):
        """The next event of this kind, and the annotations of what it is about."""
        event = await self.next()
        assert event.kind == kind, event
        return [one["metadata"].get("annotations", {}) for one in event.objects]

    @property
    def silent(self):
        return self._queue.empty()


@asynccontextmanager
async def watching(cluster, kube, name="app", clock=None, random=None):
    path = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"
    question = Question(verb="watch", resource="serviceaccounts", namespace=cluster.namespace, name=name)
    query = [("fieldSelector", f"metadata.name={name}")]
    watch = Watch(kube.client(), path, question, clock=clock or WallClock(), random=random or Random(1), whose="demo", query=query)
    found = Watching(watch)
    task = asyncio.ensure_future(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
async def kube(cluster):
    await cluster.allow("watch.yaml", "app")
    async with cluster.clients() as kube:
        yield kube


async def until(done):
    async with asyncio.timeout(5):
        while not done():
            await asyncio.sleep(0.01)


async def test_what_there_is_comes_first_and_then_each_change_within_a_second(cluster, kube):
    async with watching(cluster, kube) as watch:
        assert await watch.next_about("listed") == [{}]
        await until(lambda: cluster.proxy.count("watch=true") == 1)
        await cluster.annotate("app", {"role": "one"})
        async with asyncio.timeout(1):
            assert await watch.next_about("modified") == [{"role": "one"}]
        await cluster.delete("ServiceAccount", "app")
        async with asyncio.timeout(1):
            assert await watch.next_about("deleted") == [{"role": "one"}]
        await cluster.account("app", annotations={"role": "two"})
        async with asyncio.timeout(1):
            assert await watch.next_about("added") == [{"role": "two"}]
    assert cluster.proxy.count() == 2


async def test_others_in_the_namespace_are_neither_seen_nor_allowed_to_be(cluster, kube):
    async with watching(cluster, kube) as watch:
        await watch.next_about("listed")
        await until(lambda: cluster.proxy.count("watch=true") == 1)
        await cluster.account("app2")
        await cluster.annotate("app", {"role": "one"})
        assert await watch.next_about("modified") == [{"role": "one"}]
    async with watching(cluster, kube, "app2") as watch:
        event = await watch.next()
        assert event.kind == "failed"
        assert "may not watch serviceaccounts of app2" in str(event.error)
        assert "verbs [get, list, watch] on resources [serviceaccounts], resourceNames [app2]" in event.error.remedy


async def test_after_a_cut_it_goes_on_where_it_was_and_misses_nothing(cluster, kube):
    async with watching(cluster, kube) as watch:
        await watch.next_about("listed")
        await until(lambda: cluster.proxy.count("watch=true") == 1)
        await cluster.annotate("app", {"role": "one"})
        await watch.next_about("modified")
        cluster.proxy.always = Fault(status=503)
        cluster.proxy.cut()
        assert (await watch.next()).kind == "failed"
        await cluster.annotate("app", {"role": "two"})
        cluster.proxy.always = None
        while (event := await watch.next()).kind == "failed":
            pass
        assert event.kind == "modified"
        assert event.objects[0]["metadata"]["annotations"] == {"role": "two"}
    assert cluster.proxy.count("watch=true") == cluster.proxy.count() - 1  # one list


class Steady(Random):
    """Adds nothing to how long a watch may last."""

    def randrange(self, *_):
        return 0


@pytest.mark.parametrize("ended_by", ["a cut", "the server"])
async def test_a_watch_goes_on_from_the_bookmark_that_came_last(cluster, kube, monkeypatch, ended_by):
    """Where nothing changes in what is watched, only bookmarks keep its resourceVersion from growing too old."""
    monkeypatch.setattr("agent.kube.watch.ROUND", 3)  # a server sends one 2 s before it ends a watch
    async with watching(cluster, kube, random=Steady(1)) as watch:
        await watch.next_about("listed")
        await until(lambda: cluster.proxy.count("watch=true") == 1)
        listed = watch.version
        bookmarked = int((await cluster.account("somebody-else"))["metadata"]["resourceVersion"])
        await until(lambda: watch.version >= bookmarked)
        bookmarked = watch.version
        assert listed < bookmarked
        assert watch.silent, "a bookmark is nothing to tell of"
        if ended_by == "a cut":
            cluster.proxy.cut()
            assert (await watch.next()).kind == "failed"
        await until(lambda: cluster.proxy.count("watch=true") == 2)
        begun = [parse_qs(urlsplit(path).query)["resourceVersion"] for _, path in cluster.proxy.requests if "watch=true" in path]
        assert begun[0] == [str(listed)]
        again = int(begun[1][0])
        # the real server is changed by other tests too, and may send one more bookmark before it ends the watch
        assert again == bookmarked or (cluster.fake is None and again > bookmarked)
        await cluster.annotate("app", {"role": "one"})
        assert await watch.next_about("modified") == [{"role": "one"}]
    assert cluster.proxy.count() == cluster.proxy.count("watch=true") + 1  # one list


@pytest.mark.parametrize("how", ["as an answer", "as an event"])
async def test_a_version_that_is_too_old_is_listed_anew_at_once(cluster, kube, how):
    gone = '{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}'
    fault = Fault(status=410, body=gone, match="watch=true")
    if how == "as an event":
        fault = Fault(status=200, body=f'{{"type": "ERROR", "object": {gone}}}\n', match="watch=true")
    cluster.proxy.faults = [fault]
    clock = FakeClock()  # on which nothing that waits goes on
    async with watching(cluster, kube, clock=clock) as watch:
        await watch.next_about("listed")
        await watch.next_about("listed")
        await until(lambda: cluster.proxy.count("watch=true") == 2)
        await cluster.annotate("app", {"role": "one"})
        assert await watch.next_about("modified") == [{"role": "one"}]


async def test_what_the_server_itself_has_forgotten_is_listed_anew(cluster, kube):
    """Over events, which the real server keeps no cache of: its etcd forgets when told to."""

    async def event():
        about = {"kind": "ServiceAccount", "namespace": cluster.namespace, "name": "app"}
        made = await cluster.create("Event", f"e{cluster.proxy.count()}", metadata={"generateName": "e"}, involvedObject=about)
        return made["metadata"]["resourceVersion"]

    path = f"/api/v1/namespaces/{cluster.namespace}/events"
    question = Question(verb="watch", resource="events", namespace=cluster.namespace)
    watch = Watch(kube.client(cluster.kubeconfig()), path, question, clock=FakeClock(), random=Random(1), whose="demo")
    events = watch.events()
    try:
        async with asyncio.timeout(5):
            assert (await anext(events)).objects == ()
            old = watch._version
            await cluster.forget(await event())
            assert watch._version == old
            assert len((await anext(events)).objects) == 1
    finally:
        await events.aclose()
    assert cluster.proxy.count("watch=true") == 1


async def test_a_server_that_always_says_410_is_not_stormed(cluster, kube):
    cluster.proxy.always = Fault(status=410, match="watch=true")
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        await watch.next_about("listed")
        await watch.next_about("listed")
        await until(lambda: cluster.proxy.count() == 4)
        await asyncio.sleep(0.1)
        assert cluster.proxy.count() == 4
        for _ in range(60):
            await clock.advance(10.0)
            await asyncio.sleep(0.01)
        assert cluster.proxy.count() < 60


async def test_a_server_that_is_away_is_asked_less_and_less(cluster, kube):
    cluster.proxy.always = Fault(status=503)
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        for _ in range(100):
            await clock.advance(6.0)
            await asyncio.sleep(0.01)
        assert 5 < cluster.proxy.count() < 30  # in ten minutes
        assert (await watch.next()).kind == "failed"
        cluster.proxy.always = None
        await clock.advance(60.0)
        while (event := await watch.next()).kind == "failed":
            pass
        assert event.kind == "listed"


async def test_retry_after_is_honoured(cluster, kube):
    cluster.proxy.faults = [Fault(status=429, headers={"Retry-After": "40"})]
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        assert (await watch.next()).error.retry_after == 40
        await clock.advance(39.0)
        await asyncio.sleep(0.05)
        assert watch.silent
        await clock.advance(2.0)
        await watch.next_about("listed")


async def test_a_watch_that_falls_silent_is_begun_anew(cluster, kube, monkeypatch):
    monkeypatch.setattr("agent.kube.watch.SILENCE", 0.3)
    async with watching(cluster, kube) as watch:
        await watch.next_about("listed")
        await until(lambda: cluster.proxy.count("watch=true") >= 2)
        await cluster.annotate("app", {"role": "one"})
        assert await watch.next_about("modified") == [{"role": "one"}]


async def test_what_is_no_event_is_not_believed(cluster, kube):
    cluster.proxy.faults = [Fault(status=200, body="<html>\n", match="watch=true")]
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        await watch.next_about("listed")
        event = await watch.next()
        assert event.kind == "failed"
        assert "no event of a watch" in str(event.error)


@pytest.mark.parametrize("made_up_by", ["an event", "time"])
async def test_after_a_long_outage_and_a_watch_that_held_a_cut_is_followed_up_soon(cluster, kube, made_up_by):
    cluster.proxy.always = Fault(status=503)
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        for _ in range(60):
            await clock.advance(6.0)
            await asyncio.sleep(0.01)
        cluster.proxy.always = None
        await clock.advance(60.0)
        while (await watch.next()).kind == "failed":
            pass
        await until(lambda: cluster.proxy.count("watch=true") == 1)
        await asyncio.sleep(0.05)
        if made_up_by == "time":
            await clock.advance(2.0)
        else:
            await cluster.annotate("app", {"role": "one"})
            await watch.next_about("modified")
        cluster.proxy.cut()
        assert (await watch.next()).kind == "failed"
        await asyncio.sleep(0.02)
        await clock.advance(1.0)
        await cluster.annotate("app", {"role": "two"})
        assert await watch.next_about("modified") == [{"role": "two"}]


async def test_a_watch_that_ends_at_once_each_time_is_not_stormed(cluster, kube):
    cluster.proxy.always = Fault(status=200, match="watch=true")
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        await watch.next_about("listed")
        for _ in range(60):
            await clock.advance(10.0)
            await asyncio.sleep(0.01)
        assert 5 < cluster.proxy.count() < 40  # in ten minutes
