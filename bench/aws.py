"""What an AWS identity that is exchanged and served costs: start and resident memory, against a bare aiohttp server's.

The STS is a process of its own that answers at once. To have 500 refreshes in a minute, 25 identities get sessions that live for
three seconds; each refresh is a whole one: exchanged, stored, written as a generation, read back, and the old one removed.
"""

import socket
import tempfile
import time
from pathlib import Path

from bench import figures
from bench.cloud import Agent, agent, credential, sts
from bench.subjects import Subject, bare, listening, until

STARTS = 9
RUNS = 3
IDENTITIES = 25
REFRESHES = 500
SETTLED = 2.0
"""Seconds after which a process that does nothing is idle."""


def main() -> None:
    with sts(3600) as lasting, sts(3) as brief:
        start(lasting)
        memory(lasting, brief)


def start(upstream: Subject) -> None:
    figures.title("AWS: start of the process, against a bare aiohttp server's start to listening (one identity, exchanged and served)")
    floor, heard, given = list[float](), list[float](), list[float]()
    for run in range(STARTS + 1):
        with tempfile.TemporaryDirectory() as name, bare(Path(name)) as subject:
            alone = until(lambda: listening(subject), "listening", subject)
        with tempfile.TemporaryDirectory() as name, agent(Path(name), upstream) as ours:
            first = until(lambda: _listens(ours), "listening", ours)
            credential(ours)
            if run:  # the first only warms caches
                given.append(ours.since() * 1000)
                heard.append(first * 1000)
                floor.append(alone * 1000)
    figures.ratio("to listening", heard, floor, "ms", goal=1.35)
    figures.ratio("to the first credential in a client's hand", given, floor, "ms", goal=1.9)


def memory(lasting: Subject, brief: Subject) -> None:
    figures.title("AWS: resident memory, against a bare aiohttp server's (exchanged, written, served and scraped)")
    floor = list[float]()
    alone, idle, after = list[float](), list[float](), list[float]()
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as name, bare(Path(name)) as subject:
            until(lambda: listening(subject), "listening", subject)
            subject.get("/healthz")
            time.sleep(SETTLED)
            floor.append(subject.rss())
        alone.append(resting(lasting, 1))
        idle.append(resting(lasting, IDENTITIES))
        after.append(worked(brief))
    figures.ratio("one identity, idle", alone, floor, "MiB", goal=1.6)
    figures.ratio(f"{IDENTITIES} identities, idle", idle, floor, "MiB")
    figures.ratio(f"{IDENTITIES} identities, after {REFRESHES} refreshes", after, floor, "MiB", goal=1.6)


def resting(upstream: Subject, identities: int) -> float:
    with tempfile.TemporaryDirectory() as name, agent(Path(name), upstream, identities) as subject:
        _all_delivered(subject, identities)
        time.sleep(SETTLED)
        return subject.rss()


def worked(upstream: Subject) -> float:
    with tempfile.TemporaryDirectory() as name, agent(Path(name), upstream, IDENTITIES) as subject:
        _all_delivered(subject, IDENTITIES)
        while subject.refreshes() < REFRESHES:
            time.sleep(0.5)
            if subject.process.poll() is not None:
                raise SystemExit((Path(name) / "log").read_text())
        return subject.rss()


def _all_delivered(subject: Agent, identities: int) -> None:
    files = [subject.folder / f"out/i{number}/credentials" for number in range(identities)]
    until(lambda: listening(subject) and all(file.exists() for file in files), "everything delivered", subject)
    credential(subject)
    subject.get("/metrics")


def _listens(subject: Agent) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", subject.served)) == 0
