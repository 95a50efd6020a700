"""Clouds that hold their answers, and what shows that a client has asked before: no test has to guess how long a client needs.

A client waits for a second or two, and the agent holds its question a little less long. A test that released one credential for
several clients was late whenever the last of them asked a second after the first, as on a busy machine. So each client has an
identity of its own, and the cloud's answer for that identity is sent as soon as its question has arrived.
"""

import asyncio
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import jwt
from aiohttp import web

from tests.e2e.daemon import Daemon, until
from tests.servers.site import Site

ESTABLISHED = "01"
"""https://docs.kernel.org/networking/proc_net_tcp.html"""
ONE_LONG_TRY = {"timeout": "60s"}
"""`refresh`, for an exchange whose answer is held until every client has been started, however long that takes."""
MANY_SHORT_TRIES = {"timeout": "1s", "backoff": {"initial": "1s", "max": "1s"}}
"""`refresh`, for a cloud that does not answer: within two seconds of its coming back there is a credential."""
TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")


class HeldAnswers:
    """A cloud's answers to tokens of identities, each held until the identity is released; other requests are answered at once."""

    def __init__(self, cloud: Site) -> None:
        self._answer = cloud.answer
        self._released: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        cloud.answer = self._held  # type: ignore[method-assign]

    def release(self, *names: str) -> None:
        """Answer what waits for these identities, and what comes."""
        for name in names:
            self._released[name].set()

    def hold(self, name: str) -> None:
        """Hold the answers to this identity again."""
        self._released[name].clear()

    async def _held(self, request: web.BaseRequest) -> web.StreamResponse:
        token = TOKEN.search((await request.read()).decode())
        if token:
            subject = jwt.decode(token[0], options={"verify_signature": False})["sub"]
            await self._released[subject.rpartition(":")[2]].wait()
            if request.transport is None:  # the agent has closed the connection and asks again
                return web.Response()
        return await self._answer(request)


async def running(daemon: Daemon, config: dict[str, Any]) -> None:
    """Start the agent, and wait for its listeners but for no credential."""
    await asyncio.to_thread(daemon.start, config, wait=False)
    await asyncio.to_thread(until, lambda: daemon.log("agent.started"), within=60)


def clients_of(daemon: Daemon) -> set[str]:
    """The remote ends of the connections to the agent's metadata listeners, as its own network sees them."""
    assert daemon.process
    rows = [line.split() for line in Path(f"/proc/{daemon.process.pid}/net/tcp").read_text().splitlines()[1:]]
    opened = [one for one in daemon.log("listener.opened") if one["purpose"] not in {"admin", "control", "issuer"}]
    listening = {f":{int(address.rpartition(':')[2]):04X}" for one in opened for address in one["addresses"]}
    return {row[2] for row in rows if row[1][-5:] in listening and row[3] == ESTABLISHED}


async def connected(daemon: Daemon, before: set[str], count: int = 1) -> None:
    """Wait until so many clients have connected that were not there before."""
    await asyncio.to_thread(until, lambda: len(clients_of(daemon) - before) >= count, within=60, every=0.01)


async def answered(daemon: Daemon, dialect: str) -> dict[str, float]:
    """Answers of the metadata endpoint in that dialect, by status; a status without an answer is left out."""
    metrics = await asyncio.to_thread(daemon.metrics)
    series = {name: count for name, count in metrics.items() if name.startswith("wi_agent_metadata_requests_total{")}
    return {name.split('code="')[1][:3]: count for name, count in series.items() if f'dialect="{dialect}"' in name and count}


async def counted(daemon: Daemon, dialect: str, status: str, count: float) -> None:
    """Wait until at least so many answers of that dialect had that status."""
    async with asyncio.timeout(60):
        while (await answered(daemon, dialect)).get(status, 0) < count:
            await asyncio.sleep(0.02)


def refused() -> int:
    """Connections to this network's addresses that were refused so far, of all processes (RFC 1213, tcpAttemptFails)."""
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("AttemptFails")])


async def refused_since(before: int, count: int = 1) -> None:
    """Wait until so many more connections were refused."""
    await asyncio.to_thread(until, lambda: refused() >= before + count, within=60, every=0.01)
