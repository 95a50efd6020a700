"""What a follower makes of a watch's events, whatever the API server sends."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from agent.config.model import Identity
from agent.counters import Counters
from agent.errors import Unavailable
from agent.kube.watch import Event
from agent.serviceaccounts.annotations import effective, followed
from agent.serviceaccounts.wanted import Bound, Unbound, Unreachable, Wanted
from agent.serviceaccounts.watcher import ServiceAccountWatcher
from agent.settings import convert
from agent.toolbox import Toolbox
from tests.fakes import FakeClock

ROLE = "arn:aws:iam::123456789012:role/"


def told(wanted: Wanted | None) -> str:
    match wanted:
        case Bound(identity, uid):
            return f"{uid} {identity.provider.role_arn.rpartition('/')[2]}"  # type: ignore[union-attr]
        case Unbound():
            return "unbound"
        case Unreachable():
            return "unreachable"
        case None:
            return ""


def an_account(name: str = "app", namespace: str = "tenant1", uid: str = "u1", role: str = "one", **more: Any) -> dict[str, Any]:
    annotations = {"eks.amazonaws.com/role-arn": ROLE + role}
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations, **more}}


@pytest.fixture
def watcher() -> ServiceAccountWatcher:
    async def no_http() -> Any:
        raise AssertionError("nothing is sent")

    source = {"type": "kubernetes", "serviceAccount": {"namespace": "tenant1", "name": "app"}}
    provider = {"type": "aws", "region": "eu-west-1", "fromServiceAccount": True}
    identity = convert({"name": "x", "source": source, "provider": provider}, Identity)
    return ServiceAccountWatcher(identity, Toolbox(clock=FakeClock(), random=Random(0), counters=Counters(), http=no_http))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Event(kind="listed", objects=(an_account("app10"), an_account(), an_account(namespace="tenant10"))), "u1 one"),
        (Event(kind="listed"), "unbound"),
        (Event(kind="listed", objects=(an_account(namespace="tenant10"),)), "unbound"),
        (Event(kind="added", objects=(an_account(uid="u2", role="two"),)), "u2 two"),
        (Event(kind="modified", objects=(an_account(role="x y"),)), "unbound"),
        (Event(kind="modified", objects=(an_account(deletionTimestamp="2026-01-01T00:00:00Z"),)), "unbound"),
        (Event(kind="modified", objects=(an_account(uid=""),)), "unbound"),
        (Event(kind="deleted", objects=(an_account(),)), "unbound"),
        (Event(kind="deleted", objects=(an_account("app10"),)), ""),
        (Event(kind="added", objects=(an_account(namespace="tenant10"),)), ""),
        (Event(kind="modified", objects=({"metadata": "x"},)), ""),
        (Event(kind="modified", objects=({},)), ""),
        (Event(kind="failed", error=Unavailable("away")), "unreachable"),
        (Event(kind="resumed"), "u1 one"),
    ],
)
async def test_only_events_of_this_very_serviceaccount_count(watcher: ServiceAccountWatcher, event: Event, said: str) -> None:
    account = followed(watcher.identity)
    assert account
    watcher.hear(Event(kind="listed", objects=(an_account(),)), account)
    assert told(watcher.hear(event, account)) == said


async def test_without_an_api_server_it_has_no_principal(watcher: ServiceAccountWatcher) -> None:
    assert [told(wanted) async for wanted in watcher.wanted()] == ["unbound"]


class Streams:
    """Events as an API server streams them; each new watch begins with the last state."""

    def __init__(self, roles: list[str]) -> None:
        self.roles = roles
        self.opened = 0

    async def events(self) -> AsyncGenerator[Event, None]:
        self.opened += 1
        kind: Literal["listed", "modified"] = "listed"
        while True:
            role = self.roles.pop(0) if self.roles else ""
            if not role:
                await asyncio.Event().wait()
            yield Event(kind=kind, objects=(an_account(role=role),))
            kind = "modified"

    def restart(self) -> None:
        """The next one lists."""


async def test_a_flapping_role_is_withdrawn_at_once_and_started_ever_more_rarely(watcher: ServiceAccountWatcher, monkeypatch: Any) -> None:
    streams = Streams([f"role{number}" for number in range(1000)])
    clock, said = follow(watcher, streams, monkeypatch)
    await clock.advance(0)
    assert said == [*(f"u1 role{number}" for number in range(10)), "unbound"]
    await clock.advance(7)
    assert said[11:] == ["u1 role11", "unbound", "u1 role13", "unbound", "u1 role15", "unbound"], "after 1, 2 and 4 s"
    assert streams.opened == 4


async def test_a_bad_annotation_each_time_is_reported_ever_more_rarely(watcher: ServiceAccountWatcher, monkeypatch: Any) -> None:
    streams = Streams([f"no role {number}" for number in range(1000)])
    clock, said = follow(watcher, streams, monkeypatch)
    await clock.advance(100)
    assert said == ["unbound"] * 16
    assert len(streams.roles) > 950


async def test_an_exception_in_an_event_is_reported_once_and_the_account_listed_again(
    watcher: ServiceAccountWatcher, monkeypatch: Any, capsys: Any
) -> None:
    streams = Streams(["one"] * 5)
    monkeypatch.setattr("agent.serviceaccounts.watcher.effective", lambda *_: 1 / 0)
    clock, said = follow(watcher, streams, monkeypatch)
    await clock.advance(7)
    assert said == ["unreachable"] * 3
    monkeypatch.setattr("agent.serviceaccounts.watcher.effective", effective)
    await clock.advance(8)
    assert said[3:] == ["u1 one"] * 2
    assert capsys.readouterr().out.count("follow.defect") == 1


def follow(watcher: ServiceAccountWatcher, streams: Streams, monkeypatch: Any) -> tuple[FakeClock, list[str]]:
    """Let it follow these; return its clock and what it says."""
    said: list[str] = []
    monkeypatch.setattr("agent.serviceaccounts.watcher.Watch", lambda *_, **__: streams)
    watcher._toolbox = replace(watcher._toolbox, kube=SimpleNamespace(client=lambda _: None))  # type: ignore[arg-type]

    async def listen() -> None:
        async for wanted in watcher.wanted():
            said.append(told(wanted))

    watcher.task = asyncio.ensure_future(listen())  # type: ignore[attr-defined]
    clock = watcher._toolbox.clock
    assert isinstance(clock, FakeClock)
    return clock, said
