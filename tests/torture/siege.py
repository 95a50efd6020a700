"""A whole agent under floods, and honest clients beside them: probes, and SDKs with their identity's authorization."""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.everything import Everything
from tests.processor import own_time

ATTACKER = Path(__file__).with_name("flood.py")
PAUSE_SECONDS = 0.03
"""Between two requests of an honest client."""
PATIENCE_SECONDS = 30.0


@dataclass
class Seen:
    """What honest clients got."""

    waited: list[float] = field(default_factory=list)
    """Seconds from connecting to the end of the answer, of each that was served, less those in which the agent waited for a processor
    that other programs had: they are the machine's."""
    failed: list[str] = field(default_factory=list)

    @property
    def longest(self) -> float:
        return max(self.waited, default=0.0)

    @property
    def median(self) -> float:
        return sorted(self.waited)[len(self.waited) // 2] if self.waited else 0.0


@dataclass(frozen=True)
class Target:
    """A listener, and a request that is served there."""

    port: int
    request: bytes


def targets(one: Everything) -> Mapping[str, Target]:
    """All seven TCP listeners."""

    def get(path: str, headers: Mapping[str, str]) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}Connection: close\r\n\r\n".encode()

    dialects = {"aws": "container", "gcp": "gce", "azure": "appservice", "alibaba": "uri"}
    others = one.ways("-other")
    return {
        "admin": Target(_port(one, "admin"), get("/healthz", {})),
        "metadata": Target(one.port, get(*one.ways()["container"])),
        "issuer": Target(_port(one, "issuer"), get("/jwks", {})),
        **{f"own port of {cloud}": Target(one.ports[cloud], get(*others[dialect])) for cloud, dialect in dialects.items()},
    }


async def besiege(
    kinds: Sequence[str], connections: int, seconds: float, attacked: Sequence[Target], asked: Mapping[str, Target], pid: int
) -> dict[str, Seen]:
    """Flood with so many connections to each listener; honest clients ask meanwhile, from when the flood stands."""
    attacker = await asyncio.create_subprocess_exec(
        sys.executable, "-S", str(ATTACKER), ",".join(kinds), str(connections), str(seconds), *(str(one.port) for one in attacked),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert attacker.stdout
    try:
        assert await attacker.stdout.readline() == b"ready\n"
        await asyncio.sleep(0.3)
        last = time.monotonic() + seconds - 0.5
        seen = {name: Seen() for name in asked}
        await asyncio.gather(*(_ask_until(last, target, seen[name], pid) for name, target in asked.items()))
        made = int(await attacker.stdout.readline())
        assert made >= connections * len(attacked)
    finally:
        if attacker.returncode is None:
            await asyncio.wait_for(attacker.wait(), 10)
    return seen


def memory(pid: int) -> float:
    """MiB resident, at its highest so far."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


async def _ask_until(last: float, target: Target, seen: Seen, pid: int) -> None:
    while time.monotonic() < last:
        began = own_time(pid)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
                with closing(writer):
                    writer.write(target.request)
                    answer = await reader.read()
            if answer.startswith(b"HTTP/1.1 200 "):
                seen.waited.append(own_time(pid) - began)
            else:
                seen.failed.append(answer[:30].decode("latin-1") or "closed without an answer")
        except (OSError, TimeoutError) as error:
            seen.failed.append(type(error).__name__)
        await asyncio.sleep(PAUSE_SECONDS)


def _port(one: Everything, purpose: str) -> int:
    return int(one.daemon.address(purpose).rpartition(":")[2])
