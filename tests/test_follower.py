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
from tests.fakes import FakeClock

ROLE = "arn:aws:iam::123456789012:role/"


class Host:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def settle(self, identity: Identity, uid: str) -> None:
        self.told.append(f"{uid} {identity.provider.role_arn.rpartition('/')[2]}")  # type: ignore[union-attr]

    async def vacate(self, identity: Identity, error: Exception) -> None:
        self.told.append("nobody")

    def unseen(self, identity: Identity, error: Exception) -> None:
        self.told.append("unseen")

    def seen(self, identity: Identity) -> None:
        self.told.append("seen")


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
    return Follower(identity, Host(), Toolbox(clock=FakeClock(), random=Random(0), tally=Tally(), http=no_http))


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (Event(kind="listed", objects=(an_account("app10"), an_account(), an_account(namespace="tenant10"))), ["u1 one"]),
        (Event(kind="listed"), ["nobody"]),
        (Event(kind="listed", objects=(an_account(namespace="tenant10"),)), ["nobody"]),
        (Event(kind="added", objects=(an_account(uid="u2", role="two"),)), ["u2 two"]),
        (Event(kind="modified", objects=(an_account(role="x y"),)), ["nobody"]),
        (Event(kind="modified", objects=(an_account(deletionTimestamp="2026-01-01T00:00:00Z"),)), ["nobody"]),
        (Event(kind="modified", objects=(an_account(uid=""),)), ["nobody"]),
        (Event(kind="deleted", objects=(an_account(),)), ["nobody"]),
        (Event(kind="deleted", objects=(an_account("app10"),)), []),
        (Event(kind="added", objects=(an_account(namespace="tenant10"),)), []),
        (Event(kind="modified", objects=({"metadata": "x"},)), []),
        (Event(kind="modified", objects=({},)), []),
        (Event(kind="failed", error=Unavailable("away")), ["unseen"]),
        (Event(kind="resumed"), ["seen"]),
    ],
)
async def test_only_what_is_said_of_this_very_serviceaccount_counts(follower: Follower, event: Event, told: list[str]) -> None:
    account = followed(follower.identity)
    assert account
    await follower.hear(event, account)
    assert follower._host.told == told  # type: ignore[attr-defined]


async def test_without_a_way_to_an_api_server_it_is_nobody(follower: Follower) -> None:
    await follower.follow()
    assert follower._host.told == ["nobody"]  # type: ignore[attr-defined]
