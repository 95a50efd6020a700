"""Floods of 28 kinds: honest clients are served, none of their connections is reset, and the agent stays within the chart's memory."""

import sys
from pathlib import Path

import pytest

from tests.e2e.daemon import Daemon
from tests.e2e.everything import Everything, everything
from tests.torture.flood import KINDS
from tests.torture.siege import Seen, Target, besiege, memory, targets

CHART_LIMIT_MIB = 192
"""resources.limits.memory of the chart."""
LATE_SECONDS = 1.0
CONNECTIONS = 700
LISTENERS = ("admin", "metadata", "issuer", "own port of gcp")


def judge(seen: dict[str, Seen], what: str, late: float = LATE_SECONDS) -> list[str]:
    """What was not as it should be; says all figures."""
    faults = []
    for name, one in seen.items():
        figures = (
            f"{what}: {name}: {len(one.waited)} served, {len(one.failed)} failed, median {one.median:.2f} s, longest {one.longest:.2f} s"
        )
        sys.stdout.write(f"{figures}\n")
        if one.failed or not one.waited or one.longest > late:
            faults.append(f"{figures} {sorted(set(one.failed))}")
    return faults


def warnings(one: Everything) -> list[str]:
    """Lines that the agent logged about requests."""
    return [line["event"] for line in one.daemon.log() if line.get("logger") or line["level"] in {"error", "critical"}]


async def test_probes_and_sdks_are_served_while_all_listeners_are_flooded(tmp_path: Path) -> None:
    """The short form: all kinds at once, to all seven listeners."""
    async with everything(Daemon(tmp_path)) as one:
        assert one.daemon.process
        every = targets(one)
        assert len(every) == 7
        seen = await besiege(
            list(KINDS), 100, 4.0, list(every.values()), {name: every[name] for name in ("admin", "metadata")}, one.daemon.process.pid
        )
        assert judge(seen, "all", late=5.0) == []
        assert memory(one.daemon.process.pid) < CHART_LIMIT_MIB
        assert len(warnings(one)) <= 10


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flooded", LISTENERS)
async def test_probes_and_sdks_are_served_beside_each_flood(tmp_path: Path, flooded: str) -> None:
    faults = []
    async with everything(Daemon(tmp_path)) as one:
        assert one.daemon.process
        every = targets(one)
        asked: dict[str, Target] = {name: every[name] for name in dict.fromkeys(("admin", "metadata", flooded))}
        for kind in KINDS:
            faults += judge(
                await besiege([kind], CONNECTIONS, 3.0, [every[flooded]], asked, one.daemon.process.pid), f"{kind} at {flooded}"
            )
        sys.stdout.write(f"memory, at its highest: {memory(one.daemon.process.pid):.0f} MiB\n")
        assert memory(one.daemon.process.pid) < CHART_LIMIT_MIB
        assert len(warnings(one)) <= 30
    assert faults == []


@pytest.mark.torture
@pytest.mark.timeout(1800)
async def test_memory_stays_small_while_each_flood_is_at_all_seven_listeners(tmp_path: Path) -> None:
    """4,900 connections at a time: clients are served later than beside one flooded listener, but none is turned away."""
    faults = []
    async with everything(Daemon(tmp_path)) as one:
        assert one.daemon.process
        every = targets(one)
        for kind in KINDS:
            seen = await besiege(
                [kind],
                CONNECTIONS,
                3.0,
                list(every.values()),
                {name: every[name] for name in ("admin", "metadata")},
                one.daemon.process.pid,
            )
            faults += judge(seen, f"{kind} at all seven", late=30.0)
            sys.stdout.write(f"memory, at its highest: {memory(one.daemon.process.pid):.0f} MiB\n")
        assert memory(one.daemon.process.pid) < CHART_LIMIT_MIB
    assert faults == []
