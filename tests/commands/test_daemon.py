"""How `run` ends when it does not end well: by exit status, and without a word that may hold a secret."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, signal, sys
import agent.app
from agent.cli import main
from agent.errors import ConfigError
async def broken(*arguments):
    async with asyncio.TaskGroup() as group:
        group.create_task(fails(), name="inner")
        await asyncio.sleep(0.2)
async def fails():
    import os, signal
    if isinstance(ERROR, signal.Signals):
        os.kill(os.getpid(), ERROR)
    else:
        raise ERROR
agent.app.serve = agent.app.once = broken
ERROR = eval(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


UNDELIVERED = """
import sys
import agent.app
from agent.cli import main
async def once(*arguments):
    return [sys.argv[1]]
agent.app.once = once
sys.exit(main(sys.argv[2:]))
"""


def test_undelivered_identities_are_printed_without_terminal_codes(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("identities: []\n")
    command = [sys.executable, "-c", UNDELIVERED, "one: sub is \x1b[2J\rnot", "once", "-c", str(tmp_path / "config.yaml")]
    done = subprocess.run(command, capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"not delivered: one: sub is [2Jnot\n")


def run(tmp_path: Path, error: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "config.yaml").write_text("identities: []\n")
    command = [sys.executable, "-c", PROGRAM, error, *arguments, "-c", str(tmp_path / "config.yaml")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("command", ["run", "once"])
def test_a_bug_exits_1_and_logs_the_place_without_the_message(tmp_path: Path, command: str) -> None:
    done = run(tmp_path, "KeyError('CANARY')", command)
    assert (done.returncode, done.stdout) == (1, "")
    assert "CANARY" not in done.stderr
    assert "Traceback" not in done.stderr
    died = json.loads(done.stderr.splitlines()[-1])
    assert (died["event"], died["error"]) == ("agent.died", "KeyError")
    assert died["frames"][-1].endswith(" fails")


@pytest.mark.parametrize("command", ["run", "once"])
def test_a_listener_that_cannot_open_exits_2_with_a_remedy(tmp_path: Path, command: str) -> None:
    done = run(tmp_path, "ConfigError('cannot listen on x', remedy='free it')", command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "cannot listen on x (free it)\n"


@pytest.mark.parametrize("number", ["SIGHUP", "SIGUSR1", "SIGTERM", "SIGINT"])
def test_a_signal_during_the_start_is_not_logged_as_a_bug(tmp_path: Path, number: str) -> None:
    done = run(tmp_path, f"signal.{number}", "run")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr
