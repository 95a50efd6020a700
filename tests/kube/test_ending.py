"""What the operator ends is gone from files and endpoint at once, and stays gone after a restart.

{tenancy tightened, removed while the agent is down, revoked, `maxUse` passed with the cloud saying no} x {followed ServiceAccount,
literal role, source `file`}, over an API server and the clock of the machine.
"""

import asyncio
import base64
import json
import time
from contextlib import asynccontextmanager
from random import Random

import pytest
from aiohttp import web
from msgspec.structs import replace

from agent.clock import WallClock
from agent.config.model import Config, Refresh, Tenancy
from agent.counters import Counters
from agent.http.session import Session
from agent.identities.ledger import Ledger
from agent.identities.supervisor import Supervisor
from agent.model import Key
from agent.settings import convert
from agent.store import Store
from agent.tasks import Tasks
from agent.toolbox import Resources, Toolbox
from tests.kube.scene import ANNOTATION, ROLE
from tests.processor import own_time

KINDS = ("followed", "literal", "file")
EVENTS = ("tenancy", "removed", "revoked", "max_use")
MAX_USE_SECONDS = 3
LIMIT_SECONDS = 5.0
"""Less than any poll, retry or refresh. A quiet machine takes less than a tenth of a second; each test records what it took as `row`."""


def jwt(subject):
    now = int(time.time())
    claims = {"iss": "https://issuer.example", "sub": subject, "aud": ["sts.amazonaws.com"], "iat": now, "exp": now + 3600}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims))
    return ".".join(parts) + ".c2ln"


class Ending:
    """One identity of one kind, in a scene whose agent keeps a ledger."""

    def __init__(self, scene, kind):
        self.scene = scene
        self.kind = kind
        self.path = scene.folder.parent / "agent.sock.ledger"
        self.token = scene.folder.parent / "token"

    async def configured(self):
        namespace = self.scene.cluster.namespace
        if self.kind == "followed":
            await self.scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
            return self.scene.config()
        literal = {"roleArn": ROLE + "one", "fromServiceAccount": False}
        if self.kind == "literal":
            return self.scene.config(provider=literal)
        self.write(f"system:serviceaccount:{namespace}:app")
        return self.scene.config(provider=literal, source={"type": "file", "path": str(self.token)})

    def write(self, subject):
        self.token.with_name("new").write_text(jwt(subject))
        self.token.with_name("new").rename(self.token)

    @asynccontextmanager
    async def running(self, config):
        """An agent with a store of its own, as after a restart."""
        self.scene.store = store = Store()
        ledger = Ledger(self.path)
        await ledger.open()
        async with self.scene.cluster.clients() as kube, Session() as session, Resources(session.get) as resources:
            toolbox = Toolbox(clock=WallClock(), random=Random(1), counters=Counters(), http=session.get, resources=resources, kube=kube)
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = Tasks(group, store, toolbox)
                    self.supervisor = Supervisor(store, toolbox, tasks, {}, ledger)
                    await self.supervisor.apply(config)
                    tasks.start("withdrawal", self.supervisor.orphans.run)
                    yield
                    raise EOFError
            except* EOFError:
                await self.supervisor.close()
            finally:
                ledger.close()

    async def gone(self):
        """Seconds until neither files nor endpoint have anything."""
        began = own_time()
        await self.scene.until("", within=LIMIT_SECONDS)
        return own_time() - began


@pytest.fixture(params=KINDS)
def ending(scene, request):
    return Ending(scene, request.param)


def denied(_request):
    text = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
    return web.Response(status=403, text=text, content_type="text/xml")


def tightened(config):
    return replace(config, tenancy=convert({"namespaces": ["other"]}, Tenancy))


@pytest.mark.parametrize("event", EVENTS)
async def test_what_ends_an_identity_withdraws_it_and_a_restart_does_not_bring_it_back(ending, event, record_property):
    config = await ending.configured()
    if event == "max_use":
        config = replace(config, refresh=convert({"maxUse": f"{MAX_USE_SECONDS}s"}, Refresh))
    after = {"tenancy": tightened(config), "removed": Config(identities=())}.get(event, config)
    async with ending.running(config):
        await ending.scene.until("one", within=30)
        match event:
            case "tenancy":
                began = own_time()
                await ending.supervisor.apply(after)
                await ending.gone()
            case "revoked":
                began = own_time()
                assert await ending.supervisor.suspensions.revoke("app", "uid 0")
                await ending.gone()
            case "max_use":
                issued = ending.scene.store.newest(Key("app")).credential.issued_at
                ending.scene.cloud.instead = denied
                await ending.gone()
                began = own_time() - (WallClock().now() - issued).total_seconds() + MAX_USE_SECONDS
        seconds = None if event == "removed" else own_time() - began
    restarted = own_time()
    async with ending.running(after):
        await ending.gone()
        again = own_time() - restarted
        await asyncio.sleep(0.3)  # nothing brings it back
        assert (ending.scene.served, ending.scene.written) == (None, "")
    record_property("row", f"{event} | {ending.kind} | {'-' if seconds is None else f'{seconds:.3f}'} | {again:.3f}")
    assert seconds is None or seconds < LIMIT_SECONDS
    assert again < LIMIT_SECONDS


async def test_the_rest_runs_on_when_tenancy_is_tightened(ending):
    config = await ending.configured()
    other = replace(config.identities[0], name="other", sinks=())
    if ending.kind != "file":
        account = replace(other.source.service_account, namespace="elsewhere")
        other = replace(other, source=replace(other.source, service_account=account))
    async with ending.running(replace(config, identities=(*config.identities, other))):
        await ending.scene.until("one", within=30)
        allowed = convert({"namespaces": [ending.scene.cluster.namespace]}, Tenancy)
        await ending.supervisor.apply(replace(config, identities=(*config.identities, other), tenancy=allowed))
        assert ending.scene.written == "one"
        if ending.kind != "file":
            assert "elsewhere is not in tenancy.namespaces" in ending.scene.store.record(Key("other")).failure.message


async def test_a_tenancy_that_allows_it_again_and_a_renewal_by_name_bring_it_back(ending):
    config = await ending.configured()
    async with ending.running(config):
        await ending.scene.until("one", within=30)
        await ending.supervisor.apply(tightened(config))
        await ending.scene.until("")
        await ending.scene.reported("not in tenancy.namespaces")
        await ending.supervisor.apply(config)
        await ending.scene.until("one", within=30)
        await ending.supervisor.suspensions.revoke("app", "uid 0")
        await ending.scene.until("")
        await ending.scene.reported("revoked by uid 0 at")
        assert ending.scene.remedy == "wi-agent renew app"
        await ending.supervisor.apply(config)
        assert (ending.scene.served, ending.scene.written) == (None, ""), "a reload does not bring it back"
        assert await ending.supervisor.suspensions.reinstate("app")
        await ending.scene.until("one", within=30)
        assert ending.supervisor.suspensions.revoked == {}


async def test_a_token_of_another_tenant_ends_the_credential_that_was_delivered(scene):
    ending = Ending(scene, "file")
    config = await ending.configured()
    config = replace(config, tenancy=convert({"namespaces": [scene.cluster.namespace]}, Tenancy))
    async with ending.running(config):
        await scene.until("one", within=30)
        for subject in (f"system:serviceaccount:{scene.cluster.namespace}0:app", "somebody"):
            ending.write(subject)
            scene.store.nudge(Key("app"))
            async with asyncio.timeout(2):
                while repr(subject) not in scene.failure:
                    await asyncio.sleep(0.01)
            await scene.until("", within=1)
        ending.write(f"system:serviceaccount:{scene.cluster.namespace}:app")
        scene.store.nudge(Key("app"))
        await scene.until("one", within=30)
