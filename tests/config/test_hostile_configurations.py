"""Every hostile configuration is refused, soon and in few words, and holds nobody up while it is read."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.config import reload
from agent.config.fault import MAX_FAULTS, MAX_LINE_CHARACTERS
from agent.config.loading import MAX_FILE_BYTES, check, load
from agent.config.model import Config
from agent.config.reload import Reloader
from agent.errors import ConfigError
from tests.config.hostile import HOSTILE
from tests.config.writing import GOOD
from tests.fakes import FakeClock

REFUSED_WITHIN_SECONDS = 2.0
"""Of the processor's time: other tests take the rest."""
LOOP_HELD_SECONDS = 0.05
PROBE_EVERY_SECONDS = 0.002


class Untouched:
    """A fleet that must not be given anything."""

    async def apply(self, config: Config) -> None:
        raise AssertionError(f"applied: {config}")


class Reading:
    """`load`, and the processor's time that it took in its thread."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, path: Path, environ: dict[str, str], *, reload: bool = False) -> Config:
        began = time.thread_time()
        try:
            return load(path, environ, reload=reload)
        finally:
            self.seconds = time.thread_time() - began


async def beat(beats: list[float]) -> None:
    while True:
        beats.append(time.monotonic())
        await asyncio.sleep(PROBE_EVERY_SECONDS)


def test_there_are_at_least_sixty() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_file_is_refused_at_reload_and_the_loop_runs_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(GOOD)
    running, reading, beats = load(path, {}), Reading(), [time.monotonic()]
    monkeypatch.setattr(reload, "load", reading)
    reloader = Reloader(path, {}, running, Untouched().apply, FakeClock())
    path.write_text(HOSTILE[name])
    probe = asyncio.create_task(beat(beats))
    assert not await reloader.reload()
    probe.cancel()
    assert reloader.running is running
    assert 1 <= len(reloader.refused) <= MAX_FAULTS
    assert max(map(len, reloader.refused)) <= MAX_LINE_CHARACTERS + len(str(path))
    assert reading.seconds < REFUSED_WITHIN_SECONDS
    assert len(beats) >= reading.seconds / LOOP_HELD_SECONDS, "on the average: a single pause may be another process's"


@pytest.mark.parametrize(
    "name",
    [
        "numbers: hexadecimal",
        "depth: flow lists",
        "bombs: merge keys",
        "floods: misspelt",
        "floods: wrong at the end",
        "emptiness: nothing",
    ],
)
def test_check_refuses_a_hostile_file_in_a_hundred_lines(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HOSTILE[name])
    found = subprocess.run(
        [sys.executable, "-m", "agent", "check", "-c", str(path)], check=False, capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert found.returncode == 2
    assert 1 <= len(found.stderr.splitlines()) <= MAX_FAULTS
    assert "Traceback" not in found.stderr


def test_a_file_of_the_greatest_length_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(GOOD + "#" * (MAX_FILE_BYTES - len(GOOD)))
    assert check(path, {}).config is not None
    path.write_text(GOOD + "#" * (MAX_FILE_BYTES - len(GOOD) + 1))
    with pytest.raises(ConfigError, match="larger than"):
        check(path, {})


def test_a_thousand_good_identities_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row = (
        "- {name: i%d, source: {type: file, path: t}, provider: {type: generic, audiences: [a, b]}, sinks: [{type: files, directory: d%d}]}"
    )
    path = tmp_path / "config.yaml"
    path.write_text("\n".join(["identities:", *(row % (number, number) for number in range(1000))]))
    found = check(path, {})
    assert found.config is not None
    assert len(found.config.identities) == 1000


def test_an_external_id_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    step = "{roleArn: 'arn:aws:iam::123456789012:role/b', externalId: 'canary 5c1d'}"
    path.write_text(GOOD.replace("region: eu-west-1", f"region: eu-west-1\n      chain: [{step}]"))
    verdict = check(path, {})
    assert [fault.path for fault in verdict.faults] == ["identities[1].provider.chain[0].externalId"]
    assert "canary" not in verdict.faults[0].message
