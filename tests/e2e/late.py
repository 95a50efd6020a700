"""A cloud that is late, and the proof that clients had asked before it came."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.e2e.daemon import Daemon, until
from tests.servers.site import Site

ESTABLISHED = "01"
"""https://docs.kernel.org/networking/proc_net_tcp.html"""
PATIENT = {"timeout": "60s"}
"""`refresh`, for an exchange that is held until every client has been started, however long that takes."""
QUICK = {"timeout": "1s", "backoff": {"initial": "1s", "max": "1s"}}
"""`refresh`, for a cloud that never answers: within two seconds of its coming back there is a credential."""


def hold(cloud: Site) -> asyncio.Event:
    """Every request to it waits until this is set."""
    go, answer = asyncio.Event(), cloud.answer

    async def held(request: Any) -> Any:
        await go.wait()
        return await answer(request)

    cloud.answer = held  # type: ignore[method-assign]
    return go


async def in_time(daemon: Daemon, story: Callable[[], Awaitable[None]]) -> None:
    """Up to three times from the beginning: a busy machine may take longer to start all clients than the first is patient."""
    for tries_left in (2, 1, 0):
        try:
            await story()
            break
        except AssertionError:
            if not tries_left:
                raise
            await asyncio.to_thread(daemon.kill)
            shutil.rmtree(daemon.folder / "identities", ignore_errors=True)


async def running(daemon: Daemon, config: dict[str, Any]) -> None:
    """Starts it, and waits for its listeners but for no credential."""
    await asyncio.to_thread(daemon.start, config, wait=False)
    await asyncio.to_thread(until, lambda: daemon.log("agent.started"))


async def connected(daemon: Daemon, count: int) -> None:
    """Waits until so many clients are connected with the metadata listener."""
    port = int(daemon.address("metadata").rpartition(":")[2])
    await asyncio.to_thread(until, lambda: _connections(daemon, port) >= count, within=20, every=0.01)


def _connections(daemon: Daemon, port: int) -> int:
    """As the agent's own network sees them."""
    assert daemon.process
    lines = Path(f"/proc/{daemon.process.pid}/net/tcp").read_text().splitlines()[1:]
    return sum(fields[1].endswith(f":{port:04X}") and fields[3] == ESTABLISHED for fields in map(str.split, lines))


async def answered(daemon: Daemon, dialect: str) -> dict[str, float]:
    """Answers of the metadata endpoint in that dialect, by status; none is no entry."""
    metrics = await asyncio.to_thread(daemon.metrics)
    series = {name: count for name, count in metrics.items() if name.startswith("wi_agent_metadata_requests_total{")}
    return {name.split('code="')[1][:3]: count for name, count in series.items() if f'dialect="{dialect}"' in name and count}
