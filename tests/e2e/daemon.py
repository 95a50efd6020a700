"""The agent as somebody else runs it: its own process, a configuration file, an empty environment."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import jwt
import yaml

from agent.commands.control_client import ask
from tests.processor import own_time

COMMAND = (sys.executable, "-m", "agent")
PREPARED = """
import pkgutil, sys
import agent
for module in pkgutil.walk_packages(agent.__path__, "agent."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
from agent.cli import main
open(sys.argv.pop(1), "w").close()
sys.stdin.readline()
sys.exit(main())
"""
"""The same command in a process that has loaded the agent's modules, names a file for it, and waits for a line."""
STOP = 2.0
"""Seconds after SIGTERM by which the agent has ended."""
_open = build_opener(ProxyHandler({})).open


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What an agent under test sees, and nothing else of who runs it."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **more}


def fetch(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and text of an HTTP answer, whatever the status."""
    try:
        with _open(Request(url, method=method, headers=headers), timeout=10) as response:
            return response.status, response.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def until(done: Callable[[], Any], *, within: float = 45.0, every: float = 0.05) -> Any:
    """What `done` returns once that is true; fails after so many seconds."""
    last = time.monotonic() + within
    while not (found := done()):
        assert time.monotonic() < last, f"not so within {within} s"
        time.sleep(every)
    return found


def issuer(**more: Any) -> dict[str, Any]:
    """An `issuer` block with quick keys."""
    return {"url": "http://127.0.0.1:9482", "listen": ["127.0.0.1:0"], "state": "./issuer", "algorithm": "ES256", **more}


def identity(name: str, lifetime: str = "1h", **more: Any) -> dict[str, Any]:
    """An identity with a token of the embedded issuer, in its own directory."""
    return {
        "name": name,
        "source": {"type": "issuer", "subject": f"system:serviceaccount:demo:{name}", "lifetime": lifetime},
        "provider": {"type": "generic", "audiences": ["demo"]},
        "sinks": [{"type": "files", "directory": f"./identities/{name}"}],
        **more,
    }


def configuration(*identities: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A configuration whose every listener takes a free port."""
    return {
        "control": {"socket": "./agent.sock"},
        "admin": {"listen": ["127.0.0.1:0"]},
        "metadata": {"listen": ["127.0.0.1:0"]},
        "issuer": issuer(),
        "identities": list(identities),
        **more,
    }


class Daemon:
    """One folder with a configuration, and the agents that are run on it, one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "config.yaml"
        self.environment = environment(folder)
        self.process: subprocess.Popen[bytes] | None = None
        self.prefix: Sequence[str] = ()
        """A command that the agent is started by."""
        self._runs = 0

    def configure(self, config: dict[str, Any]) -> None:
        """Writes the configuration, as an editor does: a new file, renamed."""
        new = self.file.with_suffix(".new")
        new.write_text(yaml.safe_dump(config))
        new.replace(self.file)

    def start(self, config: dict[str, Any] | None = None, *arguments: str, wait: bool = True) -> "Daemon":
        """Runs it, and waits until every required identity is delivered."""
        if config is not None:
            self.configure(config)
        self._spawn([*COMMAND, *arguments])
        if wait:
            until(lambda: self.log("agent.started") or self.process.poll() is not None)
            assert self.process.poll() is None, self.text()
            done = self.cli("wait", "--timeout", "60")
            assert done.returncode == 0, done.stderr + self.text()
        return self

    def prepare(self) -> None:
        """Start a process that becomes the agent when `go` is called: then it listens within a fraction of a second."""
        loaded = self.folder / f"loaded.{self._runs}"
        self._spawn([sys.executable, "-c", PREPARED, str(loaded)], stdin=subprocess.PIPE)
        until(loaded.exists, within=60)

    def go(self) -> None:
        """Let the prepared process be the agent."""
        assert self.process
        assert self.process.stdin
        self.process.stdin.close()

    def _spawn(self, command: Sequence[str], **more: Any) -> None:
        self._runs += 1
        with self.stderr.open("wb") as stderr, self.stdout.open("wb") as stdout:
            self.process = subprocess.Popen(
                [*self.prefix, *command, "run", "-c", str(self.file)],
                cwd=self.folder,
                env=self.environment,
                stdout=stdout,
                stderr=stderr,
                **more,
            )

    @property
    def stderr(self) -> Path:
        return self.folder / f"stderr.{self._runs}"

    @property
    def stdout(self) -> Path:
        return self.folder / f"stdout.{self._runs}"

    def text(self) -> str:
        """All that the last run has said."""
        return self.stderr.read_text() + self.stdout.read_text()

    def log(self, event: str = "") -> list[dict[str, Any]]:
        """The last run's events of that name, or all."""
        lines = self.stderr.read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [line for line in found if not event or line["event"] == event]

    def address(self, purpose: str) -> str:
        """Where it listens for that, really."""
        return next(str(line["addresses"][0]) for line in self.log("listener.opened") if line["purpose"] == purpose)

    def admin(self, path: str) -> tuple[int, str]:
        """Status and text from the admin listener."""
        return fetch(f"http://{self.address('admin')}{path}")

    def metrics(self) -> dict[str, float]:
        """Every series and its value."""
        status, text = self.admin("/metrics")
        assert status == 200
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}

    def cli(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A client command against this agent."""
        return subprocess.run(
            [*COMMAND, *arguments, "-c", str(self.file)],
            cwd=self.folder,
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def status(self) -> dict[str, dict[str, Any]]:
        """What `status` is told, by identity."""
        return {one["name"]: one for one in ask(str(self.folder / "agent.sock"), "GET", "/status")[1]["identities"]}

    def token(self, name: str) -> dict[str, Any]:
        """The claims of the token on disk."""
        claims: dict[str, Any] = jwt.decode((self.folder / "identities" / name / "token").read_text(), options={"verify_signature": False})
        return claims

    def signal(self, number: signal.Signals) -> None:
        """Sends it."""
        assert self.process
        self.process.send_signal(number)

    def stop(self, within: float = 10.0) -> None:
        """SIGTERM, and everything that is promised of it. `within`: seconds, without those in which other programs had the processors."""
        assert self.process
        began, pid = own_time(self.process.pid), self.process.pid
        self.process.terminate()
        until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), every=0.01)
        took = own_time(pid) - began
        code = self.process.wait()
        self.process = None
        assert code == 0, self.text()
        assert took < within, f"it took {took:.2f} s to stop"

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.process:
            self.process.kill()
            self.process.wait(10)
            self.process = None
