"""`make demo` in a folder of its own: every step works, and one that does not is not passed over."""

import shutil
import socket
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from tests.e2e.daemon import environment

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "demo.sh"
LONGEST = 120
"""Seconds."""


def demo(tmp_path: Path, *, instead: tuple[str, str] = ("", "")) -> subprocess.CompletedProcess[str]:
    """Runs a copy of the script, which finds the environment beside it; then nothing it started is left."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script = tmp_path / "scripts" / "demo.sh"
    shutil.copy(SCRIPT, script)
    text = script.read_text()
    assert instead[0] in text
    script.write_text(text.replace(*instead) if instead[0] else text)
    run = subprocess.run(
        ["sh", str(script), str(tmp_path / "demo")], env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=LONGEST
    )
    config = yaml.safe_load((tmp_path / "demo" / "config.yaml").read_text())
    for address in [*config["admin"]["listen"], *config["metadata"]["listen"], config["identities"][0]["provider"]["endpoint"][7:]]:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) != 0, f"something still answers on {address}"
    return run


@pytest.mark.timeout(LONGEST + 10)
def test_every_step_of_the_demonstration_works(tmp_path: Path):
    run = demo(tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    for way in ("container-role", "assume-role-with-web-identity", "shared-credentials-file"):
        assert f" by {way} " in run.stdout
    assert "s3-reader: renewed" in run.stdout
    assert "  endpoint ok " in run.stdout
    files = tmp_path / "demo" / "files"
    credentials = ConfigParser()
    credentials.read(files / "credentials")
    keys = credentials["default"]
    for secret in ((files / "token").read_text(), keys["aws_session_token"], keys["aws_secret_access_key"]):
        assert secret not in run.stdout + run.stderr


@pytest.mark.timeout(LONGEST + 10)
def test_a_step_that_fails_fails_the_demonstration(tmp_path: Path):
    run = demo(tmp_path, instead=("whoami.py container-role", "whoami.py another-way"))
    assert run.returncode == 1
    assert "that was not another-way" in run.stderr
    assert "every step worked" not in run.stdout
