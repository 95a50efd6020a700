"""The real kube-apiserver is killed and comes back: how soon the agent sees what was deleted right after."""

import json
import ssl
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import yaml

from tests.e2e.daemon import Daemon, until
from tests.kube import apiserver
from tests.kube.scene import ANNOTATION, ROLE

GOAL_SECONDS = 5.0


class Server:
    """One of its own, that a test may kill."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.processes, self.port, _ = apiserver._start(folder)
        self.ready()

    def ready(self) -> None:
        until(lambda: apiserver._ready(self.folder, self.port), within=apiserver.PATIENCE, every=0.02)

    def kill(self) -> None:
        self.processes[1].kill()
        self.processes[1].wait()

    def start(self) -> None:
        self.processes[1] = Popen(self.processes[1].args)

    def ask(self, method: str, path: str, body: Any = None) -> None:
        context = ssl.create_default_context(cafile=self.folder / "tls" / "127.0.0.1.pem")
        headers = {"Authorization": f"Bearer {apiserver.ADMIN}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", method=method, data=data, headers=headers)
        urllib.request.urlopen(request, timeout=10, context=context).close()

    def stop(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


def configured(daemon: Daemon, server: Server, names: list[str]) -> dict[str, Any]:
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.folder / "tls" / "127.0.0.1.pem")}
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": cluster}],
        "users": [{"name": "x", "user": {"token": apiserver.ADMIN}}],
    }
    (daemon.folder / "kubeconfig").write_text(yaml.safe_dump(config))
    identities = [
        {
            "name": name,
            "source": {"type": "kubernetes", "serviceAccount": {"namespace": "demo", "name": name}, "kubeconfig": "./kubeconfig"},
            "provider": {"type": "aws", "fromServiceAccount": True, "region": "eu-west-1", "exchange": False},
            "sinks": [{"type": "files", "directory": f"./identities/{name}", "grace": "0s"}],
        }
        for name in names
    ]
    return {
        "control": {"socket": "./agent.sock"},
        "admin": {"listen": ["127.0.0.1:0"]},
        "metadata": {"listen": ["127.0.0.1:0"]},
        "identities": identities,
    }


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [8.0, 30.0])
def test_a_deletion_after_an_outage_is_seen_within_five_seconds(tmp_path: Path, seconds: float) -> None:
    if apiserver.assets() is None:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd")
    server, daemon = Server(tmp_path / "server"), Daemon(tmp_path)
    names = [f"app{number}" for number in range(5)]
    took: dict[str, float] = {}
    try:
        server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "demo"}})
        for name in names:
            account = {"metadata": {"name": name, "annotations": {ANNOTATION: ROLE + "one"}}}
            server.ask("POST", "/api/v1/namespaces/demo/serviceaccounts", account)
        daemon.start(configured(daemon, server, names))
        files = [daemon.folder / "identities" / name / "token" for name in names]
        for name in names:
            server.kill()
            time.sleep(seconds)
            server.start()
            server.ready()
            server.ask("DELETE", f"/api/v1/namespaces/demo/serviceaccounts/{name}")
            began, file = time.monotonic(), files[names.index(name)]
            until(lambda file=file: not file.exists(), within=120, every=0.01)
            took[name] = time.monotonic() - began
        sys.stdout.write(f"{seconds:g} s down: withdrawn after {[round(one, 2) for one in took.values()]} s\n")
        assert max(took.values()) <= GOAL_SECONDS
        daemon.stop()
    finally:
        daemon.kill()
        server.stop()
