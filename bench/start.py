"""From the start of the process to its listening, and to the first token on disk, against a bare server's start to listening."""

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from bench import figures
from bench.subjects import Subject, agent, bare, listening, until, write_tokens

RUNS = 9
KINDS = ("bare", "file", "issuer")


def main() -> None:
    figures.title("Start of the process, against a bare aiohttp server's start to listening (one identity)")
    measured: dict[str, dict[str, list[float]]] = {kind: {"listening": [], "token": [], "processor": []} for kind in KINDS}
    for run in range(RUNS + 1):
        for kind in KINDS:  # in turn, so that a busy moment of the machine meets all of them
            found = once(kind)
            for what, seconds in found.items() if run else ():  # the first only warms caches
                measured[kind][what].append(seconds * 1000)
    floor = measured["bare"]
    for kind, goal in (("file", 1.5), ("issuer", None)):
        figures.ratio(f"source {kind}, to listening", measured[kind]["listening"], floor["listening"], "ms")
        figures.ratio(f"source {kind}, to the first token on disk", measured[kind]["token"], floor["listening"], "ms", goal=goal)
        figures.ratio(f"source {kind}, processor time to both", measured[kind]["processor"], floor["processor"], "ms")


def once(kind: str) -> dict[str, float]:
    """Seconds to each point."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tokens(folder, 1, 3600)
        start: Callable[[], AbstractContextManager[Subject]] = {
            "bare": lambda: bare(folder),
            "file": lambda: agent(folder, "file", 1, 3600),
            "issuer": lambda: agent(folder, "issuer", 1, 3600),
        }[kind]
        with start() as subject:
            if kind == "bare":
                return {"listening": until(lambda: listening(subject), "listening", subject), "processor": subject.processor()}
            token = folder / "out/i0/token"
            seen: dict[str, float] = {}

            def both() -> bool:
                if "token" not in seen and token.exists():
                    seen["token"] = subject.since()
                if "listening" not in seen and listening(subject):
                    seen["listening"] = subject.since()
                return len(seen) == 2

            until(both, "listening and a token on disk", subject)
            return {**seen, "processor": subject.processor()}
