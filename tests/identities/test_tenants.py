"""One tenant's failing identities cost another nothing: neither its refreshes nor its place."""

from typing import Any

import pytest

from agent.config.model import Config
from agent.errors import Rejected, Unavailable
from agent.model import Key
from agent.settings import convert
from tests.fakes import FakeClock
from tests.identities.test_supervisor import Cast, cast, clock, running

__all__ = ["cast", "clock"]
CROWD = 500
HALF = 8
"""Of the 16 slots that a host has."""


def tenants(*names: str) -> Config:
    """Identities `NAMESPACE.ACCOUNT`, each written to a directory of its name."""
    identities = []
    for name in names:
        namespace, _, account = name.partition(".")
        source = {"type": "kubernetes", "serviceAccount": {"namespace": namespace, "name": account}}
        provider = {"type": "generic", "audiences": ["demo"]}
        identities.append({"name": name, "source": source, "provider": provider, "sinks": [{"type": "files", "directory": f"/{name}"}]})
    found: Config = convert({"identities": identities}, Config)
    return found


@pytest.mark.parametrize("how", ["hanging", "unavailable", "rejected"])
async def test_one_tenants_five_hundred_failing_identities_do_not_delay_anothers(cast: Cast, clock: FakeClock, how: str) -> None:
    crowd = [f"tenant1.app{number}" for number in range(CROWD)]
    faults: dict[str, Any] = {"hanging": None, "unavailable": Unavailable("away"), "rejected": Rejected("no")}
    for name in [*crowd, "tenant10.app"]:
        cast.source(None, name, None).host = "api"  # type: ignore[arg-type]
    for name in crowd:
        cast.sources[name].script.hanging = how == "hanging"
        cast.sources[name].script.fault = faults[how]
    async with running(cast, tenants(*crowd, "tenant10.app")) as (_, store):
        for _ in range(24):
            await clock.advance(5)
            assert store.delivered("tenant10.app", clock.now()), "at every look"
        assert len(cast.sinks["/tenant10.app"].grants) >= 2
        asked = sum(len(cast.sources[name].script.calls) for name in crowd)
        assert asked == HALF if how == "hanging" else asked >= CROWD, "and the crowd has its share"
        assert all(store.newest(Key(name)) is None for name in crowd)
