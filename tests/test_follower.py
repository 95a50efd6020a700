"""What a follower makes of a watch's events, whatever the API server sends."""

from random import Random
from typing import Any

import pytest

from agent.config import Identity
from agent.errors import Unavailable
from agent.follower import Follower
from agent.kube.watch import Event
from agent.principal import followed
from agent.settings import convert
from agent.tally import Tally
from agent.toolbox import Toolbox
from agent.wanted import Bound, Unbound, Unreachable, Wanted
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
def follower() -> Follower:
    async def no_http() -> Any:
        raise AssertionError("nothing is sent")

    source = {"type": "kubernetes", "serviceAccount": {"namespace": "tenant1", "name": "app"}}
    provider = {"type": "aws", "region": "eu-west-1", "fromServiceAccount": True}
    identity = convert({"name": "x", "source": source, "provider": provider}, Identity)
    return Follower(identity, Toolbox(clock=FakeClock(), random=Random(0), tally=Tally(), http=no_http))


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
async def test_only_events_of_this_very_serviceaccount_count(follower: Follower, event: Event, said: str) -> None:
    account = followed(follower.identity)
    assert account
    follower.hear(Event(kind="listed", objects=(an_account(),)), account)
    assert told(follower.hear(event, account)) == said


async def test_without_an_api_server_it_has_no_principal(follower: Follower) -> None:
    assert [told(wanted) async for wanted in follower.wanted()] == ["unbound"]
