"""What each cloud costs: time to the first credential on disk, and resident memory after one exchange, against a bare aiohttp server's.

One identity of source `file`, exchanged and written, at a local service that grants to whoever asks. `generic`, which
exchanges nothing, is there to tell what is the agent's own.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import figures
from bench.subjects import Subject, bare, free_port, listening, until, write_tokens

RUNS = 5
SETTLED = 2.0
"""Seconds after which a process that does nothing is idle."""
POOL = "projects/123456789012/locations/global/workloadIdentityPools/bench-pool/providers/bench-provider"
PROVIDERS: dict[str, dict[str, object]] = {
    "generic": {"audiences": ["bench"]},
    "aws": {"roleArn": "arn:aws:iam::123456789012:role/bench", "region": "eu-west-1", "audiences": ["bench"]},
    "azure": {
        "tenantId": "00000000-0000-0000-0000-000000000001",
        "clientId": "00000000-0000-0000-0000-000000000002",
        "audiences": ["bench"],
    },
    "gcp": {"workloadIdentityProvider": POOL, "audiences": ["bench"]},
    "alibaba": {
        "roleArn": "acs:ram::1234567890123456:role/bench",
        "oidcProviderArn": "acs:ram::1234567890123456:oidc-provider/bench",
        "region": "eu-central-1",
        "audiences": ["bench"],
    },
}


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in ("bare", *PROVIDERS)}
    memory: dict[str, list[float]] = {name: [] for name in ("bare", *PROVIDERS)}
    with grants() as upstream:
        for run in range(RUNS + 1):
            for name, found in times.items():  # in turn, so that a busy moment of the machine meets all of them
                first, resident = once(name, upstream)
                if run:  # the first only warms caches
                    found.append(first * 1000)
                    memory[name].append(resident)
    figures.title("Providers: start of the process to the first credential on disk, against a bare aiohttp server's start to listening")
    for name in PROVIDERS:
        figures.ratio(name, times[name], times["bare"], "ms")
    figures.title("Providers: resident memory after one exchange, against a bare aiohttp server's")
    for name in PROVIDERS:
        figures.ratio(name, memory[name], memory["bare"], "MiB")


def once(provider: str, upstream: Subject) -> tuple[float, float]:
    """Seconds to the first credential (of a bare server: to listening), and MiB thereafter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if provider == "bare":
            with bare(folder) as subject:
                first = until(lambda: listening(subject), "listening", subject)
                return first, rested(subject)
        with agent(folder, provider, upstream) as subject:
            manifest = folder / "out/grant.json"
            first = until(manifest.exists, "a credential on disk", subject)
            exchanged = json.loads(manifest.read_text())["credential"]["exp"] is not None
            assert exchanged is (provider != "generic"), f"{provider}: this measures something else"
            until(lambda: listening(subject), "listening", subject)
            return first, rested(subject)


def rested(subject: Subject) -> float:
    subject.get("/healthz")
    time.sleep(SETTLED)
    return subject.rss()


@contextmanager
def grants() -> Iterator[Subject]:
    """The service, listening."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        subject = Subject(["bench.grants", str(port)], port, Path(name))
        try:
            until(lambda: listening(subject), "listening", subject)
            yield subject
        finally:
            subject.stop()


@contextmanager
def agent(folder: Path, provider: str, upstream: Subject) -> Iterator[Subject]:
    """An agent with one identity, listening or about to."""
    port = free_port()
    write_tokens(folder, 1, 3600)
    elsewhere = {} if provider == "generic" else {"endpoint": f"http://127.0.0.1:{upstream.port}"}
    configuration = {
        "control": {"socket": "./agent.sock"},
        "admin": {"listen": [f"127.0.0.1:{port}"]},
        "metadata": {"listen": []},
        "identities": [
            {
                "name": "one",
                "source": {"type": "file", "path": f"{folder}/token-0"},
                "provider": {"type": provider, **PROVIDERS[provider], **elsewhere},
                "sinks": [{"type": "files", "directory": f"{folder}/out"}],
            }
        ],
    }
    (folder / "config.yaml").write_text(json.dumps(configuration))
    subject = Subject(["agent", "run", "-c", "config.yaml", "--log-level", "error"], port, folder)
    try:
        yield subject
    finally:
        if subject.process.returncode is None:
            subject.stop()
