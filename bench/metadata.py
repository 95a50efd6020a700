"""Requests per second through the whole guard, and the 99th percentile, against a `web.Application` that gives the same bytes.

By `wrk` (https://github.com/wg/wrk), in turn, each for a second, for client and server share this machine with whatever else runs;
the processor time of a request is what hardly depends on that.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import figures
from bench.cloud import AUTHORIZATION, PATH, agent, credential, sts
from bench.subjects import Subject, free_port, listening, until

ROUNDS = 15
SECONDS = 1
CONNECTIONS = (1, 32)
UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True)
class Request:
    """What is asked again and again."""

    path: str
    headers: Mapping[str, str]


CONTAINER = Request(PATH.format(0), {"Authorization": AUTHORIZATION})


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
                    compare(wrk, connections, {ours.served: ours, port: floor})
            finally:
                floor.stop()


def compare(
    wrk: str, connections: int, subjects: Mapping[int, Subject], request: Request = CONTAINER, *, rounds: int = ROUNDS, who: str = ""
) -> None:
    """By port, ours first. `who` stands before what is measured."""
    measured: dict[int, list[Sequence[float]]] = {port: [] for port in subjects}
    for run in range(rounds + 1):
        for port in list(subjects)[:: 1 if run % 2 else -1]:
            once = load(wrk, connections, port, subjects[port], request)
            if run:  # the first only warms up
                measured[port].append(once)
    ours, floor = measured.values()
    what = f"{who}{connections} connection{'s' if connections > 1 else ''}"
    figures.ratio(f"{what}, requests per second", _column(ours, 0), _column(floor, 0), "/s", goal=0.9, least=True)
    figures.ratio(f"{what}, 99th percentile", _column(ours, 1), _column(floor, 1), "ms", goal=1.2)
    figures.ratio(f"{what}, processor time of a request", _column(ours, 2), _column(floor, 2), "µs", goal=1 / 0.9)


def load(wrk: str, connections: int, port: int, subject: Subject, request: Request = CONTAINER) -> Sequence[float]:
    """Requests per second, the 99th percentile in milliseconds, and the processor's microseconds. Every answer has to be 200."""
    before = processor(subject)
    said = subprocess.run(
        [
            wrk,
            "-t1",
            f"-c{connections}",
            f"-d{SECONDS}s",
            "--latency",
            *(part for name, value in request.headers.items() for part in ("-H", f"{name}: {value}")),
            f"http://127.0.0.1:{port}{request.path}",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    tail = re.search(r"99%\s+([\d.]+)(us|ms|s)", said)
    count = re.search(r"(\d+) requests in", said)
    if not rate or not tail or not count or "Non-2xx" in said:
        raise SystemExit(f"wrk has said:\n{said}")
    return float(rate[1]), float(tail[1]) * UNITS[tail[2]], (processor(subject) - before) / int(count[1]) * 1e6


def processor(subject: Subject) -> float:
    """Seconds it has had so far (proc_pid_stat(5))."""
    fields = Path(f"/proc/{subject.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _column(rows: Sequence[Sequence[float]], index: int) -> list[float]:
    return [row[index] for row in rows]
