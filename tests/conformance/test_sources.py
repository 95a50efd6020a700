"""What every source owes the agent, wherever its tokens come from."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import get_args

import jwt
import pytest

from agent import sources
from agent.clock import WallClock
from agent.counters import Counters
from agent.errors import RefreshError
from agent.issuer.keyring import Keyring
from agent.kube.clients import KubeClients
from agent.settings import convert
from agent.sources import SourceSettings
from agent.toolbox import Issuer, Toolbox
from tests.kube.cluster import Cluster, connector
from tests.kube.fake import FakeApiServer
from tests.kube.proxy import Fault, before
from tests.servers.tls import certificate

DAY = 86400.0
CANARY = "canary-7f3a"
HOUR = timedelta(hours=1)


class Given:
    """A source that works, and what breaks it."""

    def __init__(self, settings, toolbox, spoil):
        self.toolbox = toolbox
        self.settings = convert(settings, SourceSettings)
        self.source = sources.build(self.settings, "demo", toolbox)
        self.spoil = spoil


def tools(**more):
    async def no_http():
        raise AssertionError("nobody is asked over the shared session")

    return Toolbox(clock=WallClock(), random=Random(1), counters=Counters(), http=no_http, **more)


@asynccontextmanager
async def from_file(folder):
    now = datetime.now(UTC)
    claims = {"iss": "https://i.example", "sub": "demo", "aud": ["a"], "iat": now, "exp": now + HOUR}
    (folder / "token").write_text(jwt.encode(claims, CANARY * 4, algorithm="HS256"))

    def spoil():
        (folder / "token").write_text(f"{CANARY}.is.no token")

    yield Given({"type": "file", "path": str(folder / "token")}, tools(), spoil)


@asynccontextmanager
async def from_issuer(folder):
    async with Keyring(folder / "state", "ES256", 30 * DAY, DAY, DAY, WallClock()) as keyring:
        given = Given({"type": "issuer", "subject": "demo"}, tools(issuer=Issuer(url="https://i.example", keys=keyring.keys)), lambda: None)

        def spoil():
            given.source = sources.build(given.settings, "demo", tools())

        given.spoil = spoil
        yield given


@asynccontextmanager
async def from_kubernetes(folder):
    context, pem = certificate(folder, "127.0.0.1")
    (folder / "serviceaccount").mkdir()
    async with connector() as session, FakeApiServer(context) as server, before(server.url, pem, context) as proxy:
        cluster = Cluster(server.url, pem, proxy, folder / "serviceaccount", session)
        await cluster.furnish()
        await cluster.allow("token.yaml", "app")

        def spoil():
            proxy.always = Fault(status=201, body=json.dumps({"status": {"token": f"{CANARY}.is.no token"}}))

        async with KubeClients(WallClock(), cluster.environ, service_account=cluster.folder) as kube:
            account = {"namespace": cluster.namespace, "name": "app"}
            yield Given({"type": "kubernetes", "serviceAccount": account}, tools(kube=kube), spoil)
        await asyncio.sleep(0.05)  # for TLS to say goodbye


GIVEN = {"file": from_file, "issuer": from_issuer, "kubernetes": from_kubernetes}


@pytest.fixture(params=GIVEN)
async def given(request, tmp_path):
    async with GIVEN[request.param](tmp_path) as found:
        yield found


def test_every_source_is_here():
    assert set(GIVEN) == {kind.__struct_config__.tag for kind in get_args(SourceSettings)}


async def test_a_token_is_for_whom_it_was_asked_for_and_knows_its_times(given):
    token = await given.source.fetch(["a"])
    assert token.audiences == ("a",)
    assert token.issued_at.tzinfo is UTC
    assert token.expires_at - token.issued_at == HOUR
    assert abs(datetime.now(UTC) - token.issued_at) < timedelta(seconds=10)
    assert token.subject
    assert token.issuer.startswith("https://")


async def test_nothing_shows_the_token(given):
    token = await given.source.fetch(["a"])
    signature = token.value.reveal().rsplit(".", 1)[1]
    assert signature not in repr(token)
    assert signature not in repr(vars(given.source))


async def test_what_is_wrong_is_a_failure_that_names_the_identity_and_a_remedy_and_quotes_nothing(given):
    given.spoil()
    with pytest.raises(RefreshError) as caught:
        await given.source.fetch(["a"])
    assert str(caught.value).startswith("demo: ")
    assert caught.value.remedy
    error = caught.value
    while error is not None:
        assert CANARY not in str(error)
        error = error.__cause__ or error.__context__


async def test_a_fetch_that_is_given_up_harms_no_later_one(given):
    for _ in range(3):
        task = asyncio.ensure_future(given.source.fetch(["a"]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
    await asyncio.sleep(0.05)
    assert (await given.source.fetch(["a"])).audiences == ("a",)


async def test_many_may_ask_at_once(given):
    first = await given.source.fetch(["a"])  # for a source of a file reads one at a time
    if given.settings.__struct_config__.tag == "file":
        return
    tokens = await asyncio.gather(*(given.source.fetch(["a"]) for _ in range(5)))
    assert all(token.audiences == first.audiences for token in tokens)


async def test_it_says_that_something_changed_only_when_something_did(given):
    await given.source.fetch(["a"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await given.source.changed()


async def test_whom_it_burdens_is_a_name_and_costs_nothing_to_ask(given):
    assert isinstance(given.source.host, str)


def test_making_one_touches_nothing(tmp_path):
    for settings in (
        {"type": "file", "path": str(tmp_path / "none")},
        {"type": "issuer", "subject": "demo"},
        {"type": "kubernetes", "serviceAccount": {"namespace": "a", "name": "b"}, "kubeconfig": str(tmp_path / "none")},
    ):
        sources.build(convert(settings, SourceSettings), "demo", tools(kube=KubeClients(WallClock(), {})))
