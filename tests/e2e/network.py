"""A network of its own for a test, with the clouds' link-local addresses on loopback: servers, agent and clients are in it."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.daemon import COMMAND, Daemon, until

ADDRESSES = ("169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "100.100.100.200/32", "fd00:ec2::254/128")


def namespaced() -> str:
    """Why there is no network namespace to be had here; empty where there is."""
    if not shutil.which("unshare") or not shutil.which("ip") or not shutil.which("nsenter"):
        return "unshare, nsenter or ip is not installed"
    made = subprocess.run(["unshare", "--net", "--mount", "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "only root may make a network namespace"


class Network:
    """A network and a mount namespace, held by a process that waits."""

    def __init__(self, folder: Path) -> None:
        hosts = folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n169.254.169.254 metadata.google.internal metadata\n")
        steps = [
            "ip link set lo up",
            *(f"ip addr add {address} dev lo nodad 2>/dev/null || ip addr add {address} dev lo" for address in ADDRESSES),
        ]
        steps += [f"mount --bind {shlex.quote(str(hosts))} /etc/hosts", "echo ready", "exec cat"]
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "/bin/sh", "-ec", "; ".join(steps)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout
        assert self._holder.stdout.readline() == b"ready\n"
        self.enter = ("nsenter", "--net", "--mount", f"--wdns={folder}", "--target", str(self._holder.pid), "--")

    def close(self) -> None:
        with self._holder:  # closes its pipes, at the end of which it ends
            pass


@contextmanager
def beside(daemon: Daemon, program: str, *arguments: str) -> Iterator[tuple[Network, Any]]:
    """A network and what its servers say when they listen, as JSON; the daemon will start there, and has to end as it should.

    `program`: of the servers, in Python.
    """
    network, servers = Network(daemon.folder), None
    try:
        servers = subprocess.Popen(
            [*network.enter, sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE, env={**daemon.environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert servers.stdout
        said = json.loads(servers.stdout.readline())
        daemon.prefix = network.enter
        yield network, said
        assert daemon.process
        daemon.process.terminate()
        assert daemon.process.wait(10) == 0
        daemon.process = None
    finally:
        daemon.kill()
        if servers:
            with servers:
                servers.kill()
        network.close()


def delivered(daemon: Daemon, network: Network, config: dict[str, Any]) -> None:
    """Starts it with that configuration and waits until every identity is delivered."""
    daemon.start(config, wait=False)
    until(lambda: daemon.log("agent.started") or (daemon.process and daemon.process.poll() is not None))
    done = subprocess.run(
        [*network.enter, *COMMAND, "wait", "--timeout", "20", "-c", str(daemon.file)],
        env=daemon.environment, cwd=daemon.folder, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, daemon.text()


def said(daemon: Daemon, network: Network, *command: str, lines: str = "", **more: str) -> str:
    """What a client prints whose environment is empty."""
    done = subprocess.run(
        [*network.enter, *command], env={"PATH": daemon.environment["PATH"], "HOME": str(daemon.folder), **more},
        input=lines, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
