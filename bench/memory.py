"""Resident memory idle and after 500 refreshes, against a bare server's.

To have 500 refreshes in a minute, 40 identities get tokens that live for three seconds: from the issuer, or in files that
this program keeps replacing. Each refresh is a whole one: fetched, stored, written as a generation, read back, and the old one removed.
"""

import tempfile
import time
from pathlib import Path

from bench import figures
from bench.subjects import Subject, agent, bare, listening, until, write_tokens

RUNS = 3
IDENTITIES = 40
REFRESHES = 500
LIFETIME = 3
FIRST_LIFETIME = 10
"""Seconds; the first files have to outlive the start on a busy machine."""
SETTLED = 2.0
"""Seconds after which a process that does nothing is idle."""


def main() -> None:
    figures.title(f"Resident memory, against a bare aiohttp server's ({IDENTITIES} identities; a scrape, so that all is loaded)")
    floor, alone = list[float](), list[float]()
    idle: dict[str, list[float]] = {"file": [], "issuer": []}
    after: dict[str, list[float]] = {"file": [], "issuer": []}
    for _ in range(RUNS):
        floor.append(resting_bare())
        alone.append(resting_agent("file", 1))
        for source, found in idle.items():
            found.append(resting_agent(source, IDENTITIES))
            after[source].append(worked_agent(source))
    figures.ratio("source file, one identity, idle", alone, floor, "MiB", goal=1.25)
    for source, goal in (("file", 1.25), ("issuer", None)):
        figures.ratio(f"source {source}, idle", idle[source], floor, "MiB", goal=goal)
        figures.ratio(f"source {source}, after {REFRESHES} refreshes", after[source], floor, "MiB", goal=goal)


def resting_bare() -> float:
    with tempfile.TemporaryDirectory() as name, bare(Path(name)) as subject:
        until(lambda: listening(subject), "listening", subject)
        subject.get("/healthz")
        time.sleep(SETTLED)
        return subject.rss()


def resting_agent(source: str, identities: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tokens(folder, identities, 3600)
        with agent(folder, source, identities, 3600) as subject:
            delivered(subject, folder, identities)
            subject.get("/metrics")
            time.sleep(SETTLED)
            return subject.rss()


def worked_agent(source: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tokens(folder, IDENTITIES, FIRST_LIFETIME)
        with agent(folder, source, IDENTITIES, LIFETIME) as subject:
            delivered(subject, folder, IDENTITIES)
            while subject.refreshes() < REFRESHES:
                for _ in range(2):
                    if source == "file":
                        write_tokens(folder, IDENTITIES, LIFETIME)
                    time.sleep(0.5)
                if subject.process.poll() is not None:
                    raise SystemExit((folder / "log").read_text())
            return subject.rss()


def delivered(subject: Subject, folder: Path, identities: int) -> None:
    tokens = [folder / f"out/i{number}/token" for number in range(identities)]
    until(lambda: listening(subject) and all(token.exists() for token in tokens), "everything delivered", subject)
