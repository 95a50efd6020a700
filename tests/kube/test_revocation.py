"""After a ServiceAccount or a token's principal changed: what can still be had, from files and endpoint, and for how many seconds.

One row for each way in which an identity ends, by who names its role. `pytest -s` prints what was measured.
"""

import asyncio
import configparser
import json
import sys
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import timedelta

import pytest

from agent.clock import WallClock
from agent.model import Key
from agent.store import Store
from tests.kube.scene import ANNOTATION, ROLE
from tests.processor import own_time

AT_ONCE = 1.0
"""Seconds, where the agent can know."""
ONE_REFRESH = 2.0
"""Seconds after the start of the refresh that tells the agent."""
LOOK = 0.3
"""Seconds between looks at the token file, here."""


@dataclass(frozen=True)
class Row:
    """One way to end, or not to."""

    who: str
    """followed, literal or file."""
    event: str
    denied: bool = False
    """Whether the agent may not watch."""
    told: str = "at once"
    """Or: by a refresh, never."""
    next: bool = False
    """Whether something new is delivered afterwards."""
    adopts: bool = False
    """Whether a restart serves what an earlier process left, until something tells the agent."""
    asked_at_start: bool = False
    """Whether a restart serves nothing, and asks at once whose the files are."""

    @property
    def limit(self):
        """Seconds; a file is looked at now and then."""
        return AT_ONCE if self.told == "at once" and self.who != "file" else ONE_REFRESH

    def __str__(self):
        return f"{self.who}, {'watch denied, ' if self.denied else ''}{self.event}"


ROWS = [
    Row("followed", "deleted"),
    Row("followed", "re-created", next=True),
    Row("followed", "re-annotated", next=True),
    Row("followed", "deleted", denied=True, told="by a refresh", asked_at_start=True),
    Row("followed", "re-created", denied=True, told="by a refresh", asked_at_start=True),
    Row("literal", "deleted"),
    Row("literal", "re-created", next=True),
    Row("literal", "re-annotated", told="never", adopts=True),
    Row("literal", "deleted", denied=True, told="by a refresh", adopts=True),
    Row("literal", "re-created", denied=True, told="by a refresh", next=True, adopts=True),
    Row("file", "token of another subject", next=True, adopts=True),
    Row("file", "token of a re-created ServiceAccount", next=True, adopts=True),
    Row("file", "token of another issuer", next=True, adopts=True),
    Row("file", "deleted", told="never", adopts=True),
]


class Meter:
    """What clients and the workload get."""

    def __init__(self, scene, row):
        self.scene = scene
        self.row = row
        self.path = scene.folder.parent / "source-token"

    def config(self):
        if self.row.who == "followed":
            return self.scene.config()
        provider = {"fromServiceAccount": False, "roleArn": ROLE + "one"}
        if self.row.who == "literal":
            return self.scene.config(provider=provider)
        return self.scene.config(provider=provider, source={"type": "file", "path": str(self.path)})

    def token(self, subject="system:serviceaccount:demo:app", uid="u1", issuer="https://issuer.example"):
        now = int(time.time())
        claims = {"iss": issuer, "sub": subject, "aud": ["sts.amazonaws.com"], "iat": now, "exp": now + 3600}
        claims |= {"kubernetes.io": {"serviceaccount": {"uid": uid}}}
        parts = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "RS256"}, claims))
        new = self.path.with_name("source-token.new")
        new.write_text(".".join(parts) + ".c2ln")
        new.rename(self.path)

    @property
    def served(self):
        """The access key that the endpoint gives."""
        grant = self.scene.store.usable(Key("app"), WallClock().now())
        return grant and grant.credential.document()["AccessKeyId"]

    @property
    def written(self):
        """The access key that the workload reads."""
        found = configparser.ConfigParser()
        found.read(self.scene.folder / "app" / "credentials")
        return found.get("default", "aws_access_key_id", fallback=None)

    async def until(self, done, within=60.0):
        async with asyncio.timeout(within):
            while not done():
                await asyncio.sleep(0.002)

    async def delivered(self, other_than=None):
        await self.until(lambda: self.served and self.served != other_than and self.written == self.served)
        return self.served

    async def gone(self, key, began):
        """Seconds until endpoint and files no longer have this key."""
        left = {"endpoint": lambda: self.served, "files": lambda: self.written}
        took = {}
        async with asyncio.timeout(60):
            while left:
                for name in [name for name, found in left.items() if found() != key]:
                    took[name] = own_time() - began
                    del left[name]
                await asyncio.sleep(0.002)
        return took

    async def prepare(self):
        cluster = self.scene.cluster
        if self.row.who == "followed":
            await cluster.annotate("app", {ANNOTATION: ROLE + "one"})
        if self.row.who == "file":
            self.token()
        if self.row.denied and self.row.who == "literal":
            await self.deny()

    async def deny(self):
        await self.scene.cluster.delete("RoleBinding", "wi-agent-watch-app")
        await asyncio.sleep(0.2)  # until the API server's authorizer has heard of it

    async def blind(self):
        """Takes the right to watch from an agent that had it."""
        await self.deny()
        self.scene.cluster.proxy.cut()
        record = self.scene.store.record(Key("app"))
        await self.until(lambda: "may not watch" in record.account.note())

    async def happen(self):
        cluster = self.scene.cluster
        match self.row.event:
            case "re-annotated":
                await cluster.annotate("app", {ANNOTATION: ROLE + "two"})
            case "token of another subject":
                self.token(subject="bob")
            case "token of another issuer":
                self.token(issuer="https://other.example")
            case "token of a re-created ServiceAccount":
                self.token(uid="u2")
            case _:
                await cluster.delete("ServiceAccount", "app")
        if self.row.event == "re-created":
            await cluster.account("app", annotations={ANNOTATION: ROLE + "one"})

    def renew(self):
        record = self.scene.store.record(Key("app"))
        record.renewed_at = None
        self.scene.store.renew("app", WallClock().now())

    async def told(self, key):
        """When the agent could know; what it had is served until then."""
        if self.row.told == "by a refresh":
            await asyncio.sleep(0.3)
            assert (self.served, self.written) == (key, key)
            began = own_time()
            self.renew()
            return began
        return own_time()

    def say(self, when, took):
        measured = " | ".join(f"{took.get(name, 0):.3f} s" if took else "stays" for name in ("files", "endpoint"))
        sys.stdout.write(f"\n| {self.row} | {when} | {self.row.told} | {measured} | {'the new one' if self.row.next else 'nothing'} |\n")


@pytest.fixture
def meter(scene, row, monkeypatch):
    monkeypatch.setattr("agent.sources.file.LOOK_EVERY", LOOK)
    return Meter(scene, row)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_an_identity_ends_when_it_ends(meter, row):
    await meter.prepare()
    async with meter.scene.running(meter.config()):
        key = await meter.delivered()
        if row.denied and row.who == "followed":
            await meter.blind()
        began = own_time()
        await meter.happen()
        if row.told == "never":
            await asyncio.sleep(1.0)
            assert (meter.served, meter.written) == (key, key)
            meter.say("running", None)
            return
        if row.told == "by a refresh":
            began = await meter.told(key)
        took = await meter.gone(key, began)
        assert max(took.values()) < row.limit
        if row.next:
            assert await meter.delivered(other_than=key)
        else:
            await asyncio.sleep(0.3)
            assert (meter.served, meter.written) == (None, None)
        meter.say("running", took)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_an_identity_that_ended_while_the_agent_was_down_is_not_taken_over(meter, row):
    await meter.prepare()
    async with meter.scene.running(meter.config()):
        key = await meter.delivered()
    if row.denied and row.who == "followed":
        await meter.deny()
    await meter.happen()
    meter.scene.store = Store()
    began = own_time()
    async with meter.scene.running(meter.config()):
        if row.adopts:
            await meter.until(lambda: meter.served == key)
        if row.told == "never":
            await asyncio.sleep(0.5)
            assert (meter.served, meter.written) == (key, key)
            meter.say("after a restart", None)
            return
        if row.told == "by a refresh" and not row.asked_at_start:
            began = await meter.told(key)
        had = set()
        task = asyncio.ensure_future(meter.gone(key, began))
        while not task.done():
            had.add(meter.served)
            await asyncio.sleep(0.001)
        took = await task
        assert row.adopts or key not in had, "not for a moment"
        assert max(took.values()) < row.limit
        if row.next:
            await meter.delivered(other_than=key)
        meter.say("after a restart", took)


@pytest.mark.parametrize("row", [Row("followed", "nothing", denied=True)], ids=str)
async def test_files_of_an_unseen_serviceaccount_end_with_their_expiry(meter, row, monkeypatch):
    """The watch is denied after a restart, and a token request shows the UID of the files."""
    monkeypatch.setattr("agent.identities.unconfirmed.CONFIRM_SECONDS", 0.1)
    await meter.prepare()
    async with meter.scene.running(meter.config()):
        key = await meter.delivered()
    await meter.deny()
    meter.scene.store = Store()
    asked = meter.scene.cluster.proxy.count("/token")
    async with meter.scene.running(meter.config()):
        await meter.until(lambda: meter.scene.cluster.proxy.count("/token") > asked + 1)
        assert (meter.served, meter.written) == (None, key)
        expired = WallClock().now() + timedelta(hours=2)
        monkeypatch.setattr(WallClock, "now", lambda _clock: expired)
        await meter.until(lambda: meter.written is None)
        assert "expired" in meter.scene.failure


@pytest.mark.parametrize("row", [Row("literal", "re-created", denied=True)], ids=str)
async def test_a_serviceaccount_that_is_created_anew_later_is_delivered_again(meter, row):
    """The watch is denied, so only token requests can tell."""
    await meter.prepare()
    async with meter.scene.running(meter.config()):
        key = await meter.delivered()
        before = meter.scene.store.newest(Key("app")).token.account_uid
        await meter.scene.cluster.delete("ServiceAccount", "app")
        meter.renew()
        await meter.gone(key, own_time())
        assert "there is no ServiceAccount" in meter.scene.failure
        await meter.scene.cluster.account("app")
        meter.renew()
        await meter.delivered()
        assert meter.scene.store.newest(Key("app")).token.account_uid not in {"", before}
