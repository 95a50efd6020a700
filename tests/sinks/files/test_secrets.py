"""No failure of the sink shows what it was to write."""

import os
import traceback
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.errors import RefreshError
from agent.model import Secret
from tests.sinks.files.grants_and_sinks import Bench, FakeCredential, make_grant

CANARY = "c4n4ry"


@pytest.mark.parametrize("call", ["mkdir", "open", "write", "fchmod", "fsync", "symlink", "rename", "readlink", "listdir", "stat"])
async def test_no_failure_tells(bench: Bench, directory: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr("agent.sinks.files.managed_directory.memory_backed", lambda _path: False)
    sink = bench.sink(directory)
    grant = make_grant(2, token=CANARY, credential=FakeCredential(contents={"credentials": CANARY}))
    await sink.retain("authorization", Secret(CANARY))
    await sink.write(grant)
    (directory / "..data" / "credentials").write_text(f"altered {CANARY}")

    def failing(*_args, **_named):
        raise OSError(5, "Input/output error")

    seen: list[str] = [repr(sink), repr(vars(sink)["_settings"])]
    with capture_logs() as logs:
        await sink.read()
        await sink.adopt()
        with monkeypatch.context() as broken:
            broken.setattr(os, call, failing)
            for attempt in (sink.write(grant), sink.read(), sink.adopt(), sink.retain("authorization", Secret(CANARY)), sink.withdraw()):
                try:
                    await attempt
                except RefreshError as error:
                    seen += [repr(error), *traceback.format_exception(error)]
    assert CANARY not in "".join([*seen, *map(str, logs)])
