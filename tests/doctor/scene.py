"""A cloud, an agent in this process, and the doctor's command beside them; one thing at a time is broken by a test."""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from agent.app import Parts, _listen, _parts, _publish
from agent.cli import main
from agent.clock import WallClock
from agent.config.loading import load
from agent.config.reload import Reloader
from agent.identities.supervisor import Supervisor
from agent.model import Key
from agent.serving.capacity import Capacity
from agent.tasks import Tasks
from tests.servers.cloud import ROLE, Cloud, cloud

GOLDEN = Path(__file__).parent.parent / "golden" / "doctor"
NAME = "s3-reader"
CONFIG = Path("config.yaml")
TOKEN = Path("token")


class _Stopped(Exception):  # noqa: N818  # no error: it ends the group
    """Ends the agent's group."""


class Scene:
    """The working directory holds the configuration and everything it names."""

    def __init__(self, aws: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
        self.cloud = aws
        self.ports = {"endpoint": free_port(), "own-issuer": free_port(), "issuer": aws.issuer.port, "sts": aws.sts.port}
        self.granted: Callable[[], Iterator[str]] = lambda: iter(())
        """What another cloud than AWS has granted."""
        self.reload: Callable[[], Awaitable[bool]]
        """Has the running agent read the configuration again; whether it was applied."""
        self._capsys = capsys
        self.present()

    def present(self, claims: dict[str, Any] | None = None, **overrides: Any) -> None:
        """Puts a token where the source looks."""
        TOKEN.write_text(self.cloud.issuer.mint(claims, **overrides))

    def configuration(self, **identity: Any) -> dict[str, Any]:
        """One identity from file to endpoint; what is given replaces its fields."""
        whole = {
            "name": NAME,
            "source": {"type": "file", "path": f"./{TOKEN}"},
            "provider": {"type": "aws", "roleArn": ROLE, "region": "eu-west-1", "endpoint": self.cloud.sts.url},
            "serve": {"dialects": ["container"]},
            "sinks": [{"type": "files", "directory": f"./run/{NAME}"}],
            **identity,
        }
        return {
            "control": {"socket": "./agent.sock"},
            "admin": {"listen": ["127.0.0.1:0"]},
            "metadata": {"listen": [f"127.0.0.1:{self.ports['endpoint']}"]},
            "identities": [whole],
        }

    def embedded(self, **identity: Any) -> dict[str, Any]:
        """The same with the agent's own issuer, which the cloud trusts."""
        url = f"http://127.0.0.1:{self.ports['own-issuer']}"
        self.cloud.sts.trust[ROLE] = type(self.cloud.sts.trust[ROLE])(issuer=url, subject="demo:s3-reader")
        config = self.configuration(source={"type": "issuer", "subject": "demo:s3-reader"}, **identity)
        return {**config, "issuer": {"url": url, "listen": [url.removeprefix("http://")], "state": "./issuer", "algorithm": "ES256"}}

    def configure(self, config: dict[str, Any] | None = None) -> None:
        CONFIG.write_text(yaml.safe_dump(config or self.configuration()))

    @asynccontextmanager
    async def agent(self, config: dict[str, Any] | None = None, *, delivered: bool = True) -> AsyncIterator[Parts]:
        """The daemon's parts, without its signals, until left."""
        self.configure(config)
        found, clock = load(CONFIG, os.environ), WallClock()
        try:
            async with _parts(found, clock, {}) as parts, AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                supervisor = Supervisor(parts.store, parts.toolbox, Tasks(group, parts.store, parts.toolbox), os.environ)
                stack.push_async_callback(supervisor.close)
                capacity = Capacity()
                reloader = Reloader(CONFIG, os.environ, found, supervisor.apply, clock)
                self.reload = reloader.reload
                await _publish(stack, found, parts, capacity)
                await supervisor.apply(found)
                await _listen(
                    stack,
                    found,
                    parts,
                    clock,
                    reloader,
                    Tasks(group, parts.store, parts.toolbox),
                    capacity,
                    supervisor.suspensions,
                )
                async with asyncio.timeout(60):
                    while not (parts.store.delivered(NAME, clock.now()) if delivered else failed(parts)):
                        await parts.store.change()
                yield parts
                raise _Stopped
        except* _Stopped:
            pass

    async def doctor(self, *arguments: str) -> tuple[int, str]:
        """Exit status and scrubbed output of the command; nothing secret may ever be in either stream."""
        self._capsys.readouterr()
        code = await asyncio.to_thread(main, ["-c", str(CONFIG), "doctor", *arguments])
        out, err = self._capsys.readouterr()
        for secret in self.secrets():
            assert secret not in out + err
        return code, self._scrub(out) + err

    def secrets(self) -> Iterator[str]:
        """Everything that must not be seen, as far as it is known by now."""
        for session in self.cloud.sts.sessions.values():
            yield session.secret
            yield session.token
        yield from self.granted()
        for path in (TOKEN, *Path("run").glob("*/token"), *Path("run").glob("*/authorization")):
            if path.is_file() and len(text := path.read_text()) > 8:
                yield from {text, text.rpartition(".")[2]}

    def _scrub(self, text: str) -> str:
        """Without ports, times, keys and users, which differ from run to run."""
        for name, port in self.ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"<{name}>").replace(f"sport = :{port}'", f"sport = :<{name}>'")
        text = re.sub(r"127\.0\.0\.1:\d+|\('127\.0\.0\.1', \d+\)", "<nobody>", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)
        text = re.sub(r"\d+ s left", "<n> s left", text)
        text = re.sub(r"issued \d+ s in", "issued <n> s in", text)
        text = re.sub(r"(?<![\w-])[\w-]{43}(?![\w-])", "<kid>", text)
        return re.sub(r"uid \d+, group \d+", "uid <uid>, group <gid>", text)


@asynccontextmanager
async def scene(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Scene]:
    """Up while entered."""
    with capture_logs():
        async with cloud() as aws:
            yield Scene(aws, capsys)


def free_port() -> int:
    """One that nobody had a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tree() -> dict[str, object]:
    """Everything in the working directory, as far as touching it would change anything; not when it was read."""
    found: dict[str, object] = {}
    for path in sorted(Path().rglob("*")):
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[str(path)] = (seen.st_ino, seen.st_mode, seen.st_uid, seen.st_gid, seen.st_size, seen.st_mtime_ns, content)
    return found


def failed(parts: Parts) -> bool:
    """Whether the last refresh was in vain."""
    record = parts.store.record(Key(NAME))
    return bool(record and record.failure)
