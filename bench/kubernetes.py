"""Resident memory with source `kubernetes`, against a bare server's, and where it goes.

A stand-in on this machine answers TokenRequests over http, so that nothing but the agent is measured.
"""

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench import figures
from bench.memory import SETTLED, delivered, resting_bare
from bench.subjects import Subject, configuration, free_port, write_tokens

RUNS = 3
IDENTITIES = 40
STEPS = {
    "the interpreter": "pass",
    "aiohttp, its client and server": "import aiohttp.web",
    "kubernetes_asyncio besides": "import aiohttp.web, kubernetes_asyncio.client",
}


def main() -> None:
    figures.title("Resident memory with source kubernetes, against a bare aiohttp server's")
    floor = [resting_bare() for _ in range(RUNS)]
    figures.ratio("source kubernetes, one identity, idle", [resting_agent(1) for _ in range(RUNS)], floor, "MiB", goal=1.6)
    figures.ratio(f"source kubernetes, {IDENTITIES} identities, idle", [resting_agent(IDENTITIES) for _ in range(RUNS)], floor, "MiB")
    for name, code in STEPS.items():
        figures.ratio(f"of that: {name}", [resting_import(code) for _ in range(RUNS)], floor, "MiB")


def resting_agent(identities: int) -> float:
    with tempfile.TemporaryDirectory() as name, api_server() as server:
        folder = Path(name)
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig(server)))
        port = free_port()
        blocks = configuration(folder, "file", identities, 3600, port)
        for number, identity in enumerate(blocks["identities"]):  # type: ignore[arg-type,var-annotated]
            account = {"namespace": "bench", "name": f"i{number}"}
            identity["source"] = {"type": "kubernetes", "serviceAccount": account, "kubeconfig": "./kubeconfig"}
        (folder / "config.yaml").write_text(json.dumps(blocks))
        subject = Subject(["agent", "run", "-c", "config.yaml", "--log-level", "error"], port, folder)
        try:
            delivered(subject, folder, identities)
            subject.get("/metrics")
            time.sleep(SETTLED)
            return subject.rss()
        finally:
            subject.stop()


def resting_import(code: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "step.py").write_text(f"import time\n{code}\nopen('ready', 'w').close()\ntime.sleep(60)\n")
        subject = Subject(["step"], 0, folder)
        try:
            while not (folder / "ready").exists():
                time.sleep(0.01)
            return subject.rss()
        finally:
            subject.stop()


def kubeconfig(server: str) -> dict[str, object]:
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x", "user": {"token": "x"}}],
    }


@contextmanager
def api_server() -> Iterator[str]:
    """Gives everybody the same token, which nobody verifies."""
    with tempfile.TemporaryDirectory() as name:
        write_tokens(Path(name), 1, 3600)
        status = {"token": (Path(name) / "token-0").read_text()}
    answer = json.dumps({"kind": "TokenRequest", "status": status}).encode()

    class TokenRequests(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), TokenRequests) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
