import asyncio
import socket
from contextlib import asynccontextmanager
from random import Random
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.clock import WallClock
from agent.kube.credential_files import LOOK_SECONDS
from agent.kube.errors import Attempt
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

    async def next(self):
        async with asyncio.timeout(60):
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
    question = Attempt(verb="watch", resource="serviceaccounts", namespace=cluster.namespace, name=name)
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
    async with asyncio.timeout(60):
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
    question = Attempt(verb="watch", resource="events", namespace=cluster.namespace)
    watch = Watch(kube.client(cluster.kubeconfig()), path, question, clock=FakeClock(), random=Random(1), whose="demo")
    events = watch.events()
    try:
        async with asyncio.timeout(60):
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
        assert "not a watch event" in str(event.error)


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


@pytest.mark.parametrize("how", ["unreachable", "answering 503"])
async def test_after_an_outage_a_forgotten_version_is_listed_at_once(cluster, kube, how):
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        await watch.next_about("listed")
        await until(lambda: cluster.proxy.count("watch=true") == 1)
        if how == "unreachable":
            await cluster.proxy.down()
        else:
            cluster.proxy.always = Fault(status=503)
            cluster.proxy.cut()
        for _ in range(20):
            await clock.advance(6.0)
            await asyncio.sleep(0.01)
        cluster.proxy.always = None
        cluster.proxy.faults = [Fault(status=410, match="watch=true")]
        if how == "unreachable":
            await cluster.proxy.up()
        await clock.advance(5.0 if how == "unreachable" else 60.0)
        async with asyncio.timeout(60):
            while (await watch.next()).kind != "listed":  # with no further passing of time
                pass


async def test_a_server_that_answers_again_is_followed_within_five_seconds(cluster, kube):
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        await watch.next_about("listed")
        await until(lambda: cluster.proxy.count("watch=true") == 1)
        await cluster.proxy.down()
        for _ in range(60):
            await clock.advance(3.0)
            await asyncio.sleep(0.01)
        await cluster.annotate("app", {"role": "one"})
        await cluster.proxy.up()
        await clock.advance(5.0)
        while (event := await watch.next()).kind == "failed":
            pass
        assert event.kind in {"modified", "listed"}


@pytest.mark.parametrize("status", [401, 403])
async def test_a_right_that_a_starting_server_does_not_know_is_asked_for_soon(cluster, kube, status):
    """kube-apiserver answers so before it has loaded its rules."""
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        await watch.next_about("listed")
        await until(lambda: cluster.proxy.count("watch=true") == 1)
        cluster.proxy.faults = [Fault(status=status)]
        cluster.proxy.cut()
        assert (await watch.next()).kind == "failed"
        for _ in range(5):
            await clock.advance(1.0)
            await asyncio.sleep(0.1)  # in real time, a request is answered
        await until(lambda: watch.resumed)


async def test_a_quiet_watch_is_left_alone_until_the_server_ends_it(cluster, kube):
    from agent.kube import watch as module

    assert module.SILENCE > module.ROUND + 60, "longer than any watch that is asked for"
    path = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"
    query = [("fieldSelector", "metadata.name=app"), ("watch", "true")]
    async with kube.client().opened("GET", path, query=query, silence=module.SILENCE) as response:
        line = response.connection.transport.get_extra_info("socket")
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


async def test_credentials_that_are_replaced_end_the_pause_after_a_401(cluster, kube):
    good = (cluster.folder / "token").read_text()
    cluster.own_token("unknown.unknown.unknown")
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        while cluster.proxy.count() < 7:  # by now the pause is half a minute, or longer
            await clock.advance(2.0)
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)  # in real time: the answer arrives
        cluster.own_token(good)
        began, kind = clock.now(), "failed"
        while kind == "failed":
            await clock.advance(1.0)
            await asyncio.sleep(0.1)  # in real time: the files are looked at
            while kind == "failed" and not watch.silent:
                kind = (await watch.next()).kind
        assert kind == "listed"
        assert (clock.now() - began).total_seconds() <= 2 * LOOK_SECONDS


async def test_an_exception_that_nothing_foresaw_is_told_once_and_followed_up(cluster, kube, monkeypatch, capsys):
    def absurd(header, now):
        raise OverflowError

    monkeypatch.setattr("agent.kube.errors.seconds", absurd)
    cluster.proxy.faults = [Fault(status=503, headers={"Retry-After": "x"}) for _ in range(3)]
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        for _ in range(3):
            assert (await watch.next()).error.reaction == "defect"
            await clock.advance(8.0)
        await watch.next_about("listed")
        monkeypatch.setattr("agent.kube.watch.changed", lambda line: 1 / 0)
        await until(lambda: cluster.proxy.count("watch=true") == 1)
        await cluster.annotate("app", {"role": "one"})
        assert "ZeroDivisionError in the watch of serviceaccounts" in str((await watch.next()).error)
        monkeypatch.undo()
        await clock.advance(8.0)
        assert await watch.next_about("listed") == [{"role": "one"}]
    assert capsys.readouterr().out.count("watch.defect") == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"type": "ADDED", "object": {"metadata": {"name": "' + "x" * 4_000_000, "longer than an object can be"),
        ('{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "' + "m" * 2_500_000 + '"}}\n', "answered 500"),
        ('{"type": "ADDED", "object": {"metadata": {"annotations": [1]}}}\n', "not a watch event"),
        ('{"type": "ADDED", "object": ' + "[" * 100_000 + "\n", "not a watch event"),
        ('{"type": "ADDED", "object": null}\n', "not a watch event"),
    ],
)
async def test_a_hostile_stream_fails_in_a_few_words(cluster, kube, body, said):
    cluster.proxy.faults = [Fault(status=200, body=body, match="watch=true")]
    async with watching(cluster, kube, clock=FakeClock()) as watch:
        await watch.next_about("listed")
        error = (await watch.next()).error
        assert said in str(error)
        assert len(str(error)) < 1000


async def test_a_flood_of_blank_lines_is_read_no_faster_than_allowed(cluster, kube, monkeypatch):
    monkeypatch.setattr("agent.kube.client.STREAM_BYTES_AT_ONCE", 64 * 1024.0)
    cluster.proxy.always = Fault(status=200, body="\n" * 1_000_000, match="watch=true")
    clock = FakeClock()
    async with watching(cluster, kube, clock=clock) as watch:
        await watch.next_about("listed")
        for _ in range(10):
            await asyncio.sleep(0.05)
            await clock.advance(0.5)
        assert cluster.proxy.count("watch=true") == 1, "it is still being read"
        assert watch.silent


async def test_a_list_that_is_none_is_not_believed(cluster, kube):
    cluster.proxy.faults = [Fault(status=200, body='{"items": 7}')]
    async with watching(cluster, kube, clock=FakeClock()) as watch:
        assert "not a list of serviceaccounts" in str((await watch.next()).error)
