"""The processes under measurement: a bare server, and agents with one source or the other.

They are started with the same interpreter, the packages of the image and an environment of their own, so that nothing of
the caller's is measured.
"""

import base64
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.shelf import fill

PATIENCE = 30.0
"""Seconds until a process that has not come up is given up."""


class Subject:
    """One running process and the port it listens on."""

    def __init__(self, arguments: list[str], port: int, folder: Path) -> None:
        self.port = port
        self.folder = folder
        shelf = folder / "shelf"
        shelf.mkdir()
        fill(shelf)
        environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONPATH": str(shelf)}
        self.began = time.perf_counter()
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-m", *arguments], cwd=folder, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def since(self) -> float:
        """Seconds since it was started."""
        return time.perf_counter() - self.began

    def rss(self) -> float:
        """Resident memory, MiB (proc_pid_status(5))."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
        assert found
        return int(found[1]) / 1024

    def processor(self) -> float:
        """Seconds of processor time that its threads have used so far: what a busy machine delays, it does not add to this.

        /proc/PID/task/TID/schedstat begins with them, in nanoseconds (Linux, Documentation/scheduler/sched-stats.rst).
        """
        return sum(map(_ran, Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"))) / 1e9

    def get(self, path: str) -> str:
        """A page of it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
            return str(response.read().decode())

    def refreshes(self) -> int:
        """How many refreshes of the agent have brought something new."""
        return int(sum(map(float, re.findall(r'^wi_agent_refresh_total\{.*result="success"\} (\S+)$', self.get("/metrics"), re.MULTILINE))))

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait(PATIENCE)


def until(done: Callable[[], bool], what: str, subject: Subject) -> float:
    """Looks every millisecond; returns the seconds since the process was started."""
    while not done():
        if subject.since() > PATIENCE or subject.process.poll() is not None:
            raise SystemExit(f"{what}: not so. The process has said:\n{(subject.folder / 'log').read_text()}")
        time.sleep(0.001)
    return subject.since()


def listening(subject: Subject) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", subject.port)) == 0


@contextmanager
def bare(folder: Path) -> Iterator[Subject]:
    """The floor, listening or about to."""
    port = free_port()
    with _running(Subject(["bench.bare", str(port)], port, folder)) as subject:
        yield subject


@contextmanager
def agent(folder: Path, source: str, identities: int, lifetime: int) -> Iterator[Subject]:
    """An agent with so many identities, whose tokens live for so many seconds. Source `file` needs `write_tokens` before and meanwhile."""
    port = free_port()
    (folder / "config.yaml").write_text(json.dumps(configuration(folder, source, identities, lifetime, port)))
    with _running(Subject(["agent", "run", "-c", "config.yaml", "--log-level", "error"], port, folder)) as subject:
        yield subject


def configuration(folder: Path, source: str, identities: int, lifetime: int, port: int) -> dict[str, object]:
    sources: dict[str, dict[str, object]] = {
        "file": {"type": "file"},
        "issuer": {"type": "issuer", "lifetime": f"{lifetime}s"},
    }
    blocks: dict[str, object] = {
        "control": {"socket": "./agent.sock"},
        "admin": {"listen": [f"127.0.0.1:{port}"]},
        "metadata": {"listen": []},
        "refresh": {"maxAge": "10d"},
    }
    if source == "issuer":
        port = free_port()
        blocks["issuer"] = {
            "url": f"http://127.0.0.1:{port}",
            "listen": [f"127.0.0.1:{port}"],
            "state": "./issuer",
            "lifetime": {"min": "1s", "max": "48h"},
        }
    return blocks | {
        "identities": [
            {
                "name": f"i{number}",
                "source": sources[source] | ({"path": f"{folder}/token-{number}"} if source == "file" else {"subject": f"i{number}"}),
                "provider": {"type": "generic", "audiences": ["bench"]},
                "sinks": [{"type": "files", "directory": f"{folder}/out/i{number}", "grace": "1s"}],
            }
            for number in range(identities)
        ]
    }


def write_tokens(folder: Path, identities: int, lifetime: float) -> None:
    """Tokens as kubelet would project them; nobody here verifies their signature."""
    now = time.time()
    for number in range(identities):
        claims = {"iss": "https://issuer.example", "sub": f"i{number}", "aud": ["bench"], "iat": int(now), "exp": now + lifetime}
        parts = [{"alg": "RS256", "typ": "JWT", "kid": "k"}, claims]
        text = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "." + "s" * 342
        (folder / "new").write_text(text)
        (folder / "new").rename(folder / f"token-{number}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(subject: Subject) -> Iterator[Subject]:
    try:
        yield subject
    finally:
        subject.stop()


def _ran(schedstat: Path) -> int:
    """Nanoseconds of a thread; none where it has ended meanwhile."""
    try:
        return int(schedstat.read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0
