"""An agent with AWS identities that are exchanged and served, and the STS it asks, for the programs that measure one."""

import json
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.subjects import Subject, free_port, listening, until, write_tokens

AUTHORIZATION = "bench-authorization-of-thirty-two"
PATH = "/aws/i{}/credentials"


class Agent(Subject):
    """`port` is for scrapes."""

    served = 0
    """The port for SDKs."""


@contextmanager
def sts(lifetime: float, delay: float = 0.0) -> Iterator[Subject]:
    """Listening."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        subject = Subject(["bench.sts", str(port), str(lifetime), str(delay)], port, Path(name))
        try:
            until(lambda: listening(subject), "listening", subject)
            yield subject
        finally:
            subject.stop()


@contextmanager
def agent(folder: Path, upstream: Subject, identities: int = 1) -> Iterator[Agent]:
    """Listening or about to; the tokens of its sources live for an hour."""
    port, admin = free_port(), free_port()
    configure(folder, identities, upstream, port, admin)
    subject = Agent(["agent", "run", "-c", "config.yaml", "--log-level", "error"], admin, folder)
    subject.served = port
    try:
        yield subject
    finally:
        if subject.process.returncode is None:
            subject.stop()


def configure(folder: Path, identities: int, upstream: Subject, port: int, admin: int) -> None:
    """Writes the configuration and the tokens it speaks of."""
    write_tokens(folder, identities, 3600)
    configuration = {
        "control": {"socket": "./agent.sock"},
        "admin": {"listen": [f"127.0.0.1:{admin}"]},
        "metadata": {"listen": [f"127.0.0.1:{port}"]},
        "identities": [
            {
                "name": f"i{number}",
                "source": {"type": "file", "path": f"{folder}/token-{number}"},
                "provider": {
                    "type": "aws",
                    "roleArn": f"arn:aws:iam::123456789012:role/bench-{number}",
                    "region": "eu-west-1",
                    "audiences": ["bench"],
                    "endpoint": f"http://127.0.0.1:{upstream.port}",
                },
                "serve": {"dialects": ["container"], "authorization": AUTHORIZATION},
                "sinks": [{"type": "files", "directory": f"{folder}/out/i{number}", "grace": "1s"}],
            }
            for number in range(identities)
        ],
    }
    (folder / "new.yaml").write_text(json.dumps(configuration))
    (folder / "new.yaml").rename(folder / "config.yaml")


def credential(subject: Agent) -> bytes:
    """What an SDK is given, as soon as there is one."""
    request = urllib.request.Request(f"http://127.0.0.1:{subject.served}{PATH.format(0)}", headers={"Authorization": AUTHORIZATION})
    with urllib.request.urlopen(request, timeout=10) as response:
        return bytes(response.read())
