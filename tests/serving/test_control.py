"""What the control socket answers, and that nothing sent to it does harm."""

import asyncio
from datetime import timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from agent.errors import Rejected, Unavailable
from agent.model import Grant, Key
from agent.record import Profile
from agent.serving.control import ControlEndpoint
from agent.store import Store
from tests.fakes import FakeClock, FakeCredential, a_token


class Desk:
    """A store with one identity that nobody keeps, and the control socket over it."""

    def __init__(self, client):
        self.clock = FakeClock()
        self.store = Store()
        self.record = self.store.enrol(Profile(name="one", digest="d", source="fake", provider="fake", sinks=()))
        self.client = client

    def granted(self):
        now = self.clock.now()
        self.store.granted(Grant(key=Key("one"), digest="d", token=a_token(now), credential=FakeCredential()))

    async def ask(self, method, path, **more):
        async with self.client.request(method, path, **more) as response:
            return response.status, await response.json()


@pytest.fixture
async def desk():
    made = Desk(None)
    endpoint = ControlEndpoint(made.store, made.clock)

    async def answer(request):
        return await endpoint.answer(request)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestClient(TestServer(application)) as client:
        made.client = client
        yield made


async def test_a_refused_variant_is_in_the_status_of_an_identity_that_is_fresh(desk):
    desk.granted()
    for variant in ("api://good", "api://nope"):
        desk.store.open_variant(Key("one", variant))
    desk.store.attempted(Key("one", "api://nope"), Rejected("one: no such resource", remedy="correct it"), desk.clock.now())
    (found,) = (await desk.ask("GET", "/status"))[1]["identities"]
    assert (found["state"], found["failure"], found["variants"]) == ("fresh", None, ["api://good", "api://nope"])
    assert list(found["variantFailures"]) == ["api://nope"]
    assert found["variantFailures"]["api://nope"]["remedy"] == "correct it"


async def test_status_is_plain_data(desk):
    status, found = await desk.ask("GET", "/status")
    assert (status, found["ready"]) == (200, False)
    assert found["identities"][0]["state"] == "missing"
    desk.granted()
    found = (await desk.ask("GET", "/status"))[1]
    assert (found["ready"], found["identities"][0]["token"]["expiresInSeconds"]) == (True, 3600.0)
    assert "canary" not in str(found), "the token itself is nowhere"


async def test_wait_answers_when_all_is_delivered_and_at_the_latest_in_time(desk):
    assert not (await desk.ask("GET", "/wait?timeout=0"))[1]["ready"]
    waiting = asyncio.ensure_future(desk.ask("GET", "/wait?timeout=30"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    desk.granted()
    assert (await waiting)[1]["ready"]
    for nonsense in ("abc", ""):
        assert (await desk.ask("GET", f"/wait?timeout={nonsense}"))[0] == 400
    for odd in ("nan", "-1", "-inf"):
        assert (await desk.ask("GET", f"/wait?timeout={odd}"))[0] == 200


async def test_a_renewal_says_what_came_of_it(desk):
    async def renewal(error, **body):
        asking = asyncio.ensure_future(desk.ask("POST", "/renew", json=body))
        while not desk.record.wake.is_set():
            await asyncio.sleep(0.005)
        desk.record.wake.clear()
        desk.store.attempted(Key("one"), error, desk.clock.now())
        return (await asking)[1]["renewals"]

    assert await renewal(None, all=True) == {"one": "renewed"}
    assert (await desk.ask("POST", "/renew", json={"names": ["one"]}))[1] == {"renewals": {"one": "too_recent"}}
    desk.clock.jump(11)
    assert await renewal(Unavailable("no"), names=["one", "one"]) in ({"one": "failed"}, {"one": "too_recent"})
    desk.clock.jump(11)
    assert await renewal(Rejected("no"), names=["one"]) == {"one": "failed"}


async def test_an_identity_that_goes_during_its_renewal_keeps_nobody_waiting(desk):
    asking = asyncio.ensure_future(desk.ask("POST", "/renew", json={"names": ["one"]}))
    while not desk.record.wake.is_set():
        await asyncio.sleep(0.005)
    desk.store.forget("one")
    async with asyncio.timeout(2):
        assert (await asking)[1] == {"renewals": {"one": "failed"}}


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/", b"", 404),
        ("POST", "/status", b"", 404),
        ("GET", "/renew", b"", 404),
        ("POST", "/renew", b"", 400),
        ("POST", "/renew", b"{}", 400),
        ("POST", "/renew", b"[]", 400),
        ("POST", "/renew", b"\xff", 400),
        ("POST", "/renew", b'{"names": 3}', 400),
        ("POST", "/renew", b'{"names": ["two"]}', 404),
        ("POST", "/renew", b"[" * 100_000, 400),
    ],
)
async def test_what_it_does_not_understand_it_refuses(desk, method, path, body, expected):
    status, found = await desk.ask(method, path, data=body)
    assert status == expected
    assert found["error"]
    assert desk.record.asked == set()


async def test_states_follow_the_clock(desk):
    desk.granted()
    for seconds, state in ((0, "fresh"), (2800, "fresh"), (160, "stale"), (700, "expired")):
        desk.clock.jump(seconds)
        assert (await desk.ask("GET", "/status"))[1]["identities"][0]["state"] == state, timedelta(seconds=seconds)
