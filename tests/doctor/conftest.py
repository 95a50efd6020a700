"""Each test of the doctor has a directory, an environment and a cloud of its own."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doctor.scene import Scene, scene


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Scene]:
    """Nothing runs yet; the command leaves this process's limits and logs alone."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("AWS_", "WI_AGENT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("agent.commands.doctor.harden", lambda: None)
    monkeypatch.setattr("agent.commands.doctor.set_up", lambda *_: None)
    async with scene(capsys) as made:
        yield made
