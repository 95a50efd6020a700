"""Requests per second through the whole guard, and the 99th percentile, against a `web.Application` that gives the same bytes.

By `wrk` (https://github.com/wg/wrk), in turn, each for a few seconds; client and server share this machine.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import figures
from bench.cloud import AUTHORIZATION, PATH, agent, credential, sts
from bench.subjects import Subject, free_port, listening, until

ROUNDS = 7
SECONDS = 2
CONNECTIONS = (1, 32)
UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


def main() -> None:
    wrk = shutil.which("wrk")
    if wrk is None:
        print("\nThe endpoint under load: skipped, there is no wrk here")
        return
    figures.title("The endpoint under load, through the whole guard, against a bare web.Application that gives the same bytes")
    with sts(3600) as upstream, tempfile.TemporaryDirectory() as name, agent(Path(name), upstream) as ours:
        until(lambda: listening(ours), "listening", ours)
        body = Path(name) / "body"
        body.write_bytes(credential(ours))
        port = free_port()
        with tempfile.TemporaryDirectory() as other:
            floor = Subject(["bench.same", str(port), str(body)], port, Path(other))
            try:
                until(lambda: listening(floor), "listening", floor)
                for connections in CONNECTIONS:
                    compare(wrk, connections, ours.served, port)
            finally:
                floor.stop()


def compare(wrk: str, connections: int, ours: int, floor: int) -> None:
    measured: dict[int, list[tuple[float, float]]] = {ours: [], floor: []}
    for run in range(ROUNDS + 1):
        for port, found in measured.items():
            once = load(wrk, connections, port)
            if run:  # the first only warms up
                found.append(once)
    what = f"{connections} connection{'s' if connections > 1 else ''}"
    figures.ratio(f"{what}, requests per second", _column(measured[ours], 0), _column(measured[floor], 0), "/s", goal=0.9, least=True)
    figures.ratio(f"{what}, 99th percentile", _column(measured[ours], 1), _column(measured[floor], 1), "ms", goal=1.2)


def load(wrk: str, connections: int, port: int) -> tuple[float, float]:
    """Requests per second, and the 99th percentile in milliseconds. Every answer has to be 200."""
    said = subprocess.run(
        [
            wrk,
            "-t1",
            f"-c{connections}",
            f"-d{SECONDS}s",
            "--latency",
            "-H",
            f"Authorization: {AUTHORIZATION}",
            f"http://127.0.0.1:{port}{PATH}",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    tail = re.search(r"99%\s+([\d.]+)(us|ms|s)", said)
    if not rate or not tail or "Non-2xx" in said:
        raise SystemExit(f"wrk has said:\n{said}")
    return float(rate[1]), float(tail[1]) * UNITS[tail[2]]


def _column(rows: Sequence[tuple[float, float]], index: int) -> list[float]:
    return [row[index] for row in rows]
