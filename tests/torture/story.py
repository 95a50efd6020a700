"""What the processes of the torture agree on: what a generation holds, and how a reader tells that it is whole.

A generation's number is in every file of it, with a filler that makes files long enough to tear and a checksum.
"""

import hashlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from agent.counters import Counters
from agent.model import Grant, IdentityToken, Key, Paths, Secret
from agent.sinks.files.sink import FilesSettings, FilesSink
from agent.toolbox import Toolbox

IDENTITY = "tortured"
DIGEST = "d"
GRACE = 0.2
"""Seconds."""
PERIOD = GRACE / 25
"""Seconds between two generations: so that the grace is over before the limit on kept generations bites."""
FILES = ("token", "credentialsFile", "config")


def content(file: str, number: int) -> str:
    body = f"{IDENTITY}|{file}|{number}|{'x' * (number % 7 * 1000)}"
    return f"{body}|{hashlib.sha256(body.encode()).hexdigest()}"


def number_in(file: str, text: str) -> int:
    """Raises ValueError for what is torn, cut, or another file's."""
    body, _, checksum = text.rpartition("|")
    if hashlib.sha256(body.encode()).hexdigest() != checksum:
        raise ValueError(f"{file} is torn: {len(text)} characters, {text[:60]!r}")
    identity, name, number, _ = body.split("|")
    if (identity, name) != (IDENTITY, file):
        raise ValueError(f"{file} holds {identity}'s {name}")
    return int(number)


class StoryCredential:
    """Files that say which generation they are of."""

    issued_at = None
    expires_at = None

    def __init__(self, number: int) -> None:
        self._number = number

    def files(self, paths: Paths) -> dict[str, Secret]:
        return {file: Secret(content(file, self._number)) for file in FILES if file != "token"}

    def document(self) -> dict[str, Any]:
        return {}


def grant(number: int) -> Grant:
    now = datetime.now(UTC)
    token = IdentityToken(
        value=Secret(content("token", number)),
        issuer="i",
        subject="s",
        audiences=(),
        issued_at=now,
        expires_at=now + timedelta(hours=1),
    )
    return Grant(key=Key(IDENTITY), digest=DIGEST, token=token, credential=StoryCredential(number), generation=number)


def sink(directory: Path) -> FilesSink:
    from agent.clock import WallClock

    async def nobody() -> Any:
        raise AssertionError

    toolbox = Toolbox(clock=WallClock(), random=Random(), counters=Counters(), http=nobody)
    made = FilesSink(FilesSettings(directory=str(directory)), IDENTITY, DIGEST, toolbox)
    made.retention.grace = GRACE
    return made


def report(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
