"""Grants, and sinks on directories, that tests put together as they like."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from agent.counters import Counters
from agent.model import Grant, IdentityToken, Key, Paths, Secret
from agent.sinks.files.sink import FilesSettings, FilesSink
from agent.toolbox import Toolbox
from tests.fakes import START, FakeClock

DIGEST = "d1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCredential:
    """Files like a cloud's."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None
    contents: Mapping[str, str] = field(default_factory=lambda: {"credentialsFile": "[default]\n", "config": "{}"})

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        return {name: Secret(f"{text}token={paths.path('token')}\n") for name, text in self.contents.items()}

    def document(self) -> Mapping[str, Any]:
        return {}


def make_grant(
    generation: int = 1,
    *,
    identity: str = "app",
    token: str | None = "header.payload.signature",
    issued: datetime = START,
    lifetime: float = 3600,
    companions: Mapping[str, str] | None = None,
    credential: FakeCredential | None = None,
) -> Grant:
    """A grant whose token says which generation it is of."""
    held = token and IdentityToken(
        value=Secret(f"{token}.{identity}.{generation}"),
        issuer="https://issuer",
        subject="sub",
        audiences=("aud",),
        issued_at=issued,
        expires_at=issued + timedelta(seconds=lifetime),
        companions=companions or {},
    )
    return Grant(key=Key(identity), digest=DIGEST, token=held or None, credential=credential or FakeCredential(), generation=generation)


class Bench:
    """Makes sinks, as many processes would one after the other, and closes them."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.random = Random(7)
        self.sinks: list[FilesSink] = []

    def sink(self, directory: Path, *, identity: str = "app", digest: str = DIGEST, **settings: Any) -> FilesSink:
        toolbox = Toolbox(clock=self.clock, random=self.random, counters=Counters(), http=no_network)
        sink = FilesSink(FilesSettings(directory=str(directory), **settings), identity, digest, toolbox)
        self.sinks.append(sink)
        return sink


async def no_network() -> Any:
    raise AssertionError("a files sink asks nobody")


def contents(directory: Path) -> dict[str, str]:
    """What a workload reads, by path."""
    return {path.name: path.read_text() for path in sorted(directory.iterdir()) if not path.name.startswith("..")}


def generations(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("..2"))


def machinery(directory: Path) -> list[str]:
    """Everything there that a workload is not meant to read, but for the writer's lock, which stays."""
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("..") and path.name != "..lock")
