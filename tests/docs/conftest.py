"""A place as a reader of the documents has it: the example configuration, an agent that runs with it, the commands on the path.

Ports are moved aside, in the configuration and in what is read from the documents, so that tests do not meet.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAPERS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PORT = re.compile(r"\b948[0-2]\b")


def blocks(paper: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", paper.read_text(), re.MULTILINE | re.DOTALL)


def names(paper: Path) -> str:
    return str(paper.relative_to(ROOT))


@dataclass
class Place:
    """Where commands of the documents are run."""

    folder: Path
    ports: dict[str, str]
    environment: dict[str, str]

    def moved(self, text: str) -> str:
        """With the ports that are used here."""
        return PORT.sub(lambda found: self.ports[found[0]], text)


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "wi-agent").write_text(f'#!/bin/sh\nexec {sys.executable} -m agent "$@"\n')
    if shutil.which("curl") is None:  # enough of it
        script = """
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen("http://" + sys.argv[-1])
except urllib.error.HTTPError as refused:
    answer = refused
sys.stdout.buffer.write(answer.read())
"""
        (programs / "curl.py").write_text(script)
        (programs / "curl").write_text(f'#!/bin/sh\nexec {sys.executable} {programs}/curl.py "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    folder = tmp_path / "place"
    folder.mkdir()
    found = Place(
        folder,
        {str(number): str(_free_port()) for number in (9480, 9481, 9482)},
        {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)},
    )
    (folder / "config.example.yaml").write_text(found.moved((ROOT / "config.example.yaml").read_text()))
    shutil.copytree(ROOT / "docs", folder / "docs")
    log = (tmp_path / "log").open("wb")
    agent = subprocess.Popen(
        [sys.executable, "-m", "agent", "run", "-c", "config.example.yaml"], cwd=folder, env=found.environment, stdout=log, stderr=log
    )
    try:
        wait = [sys.executable, "-m", "agent", "-c", "config.example.yaml", "wait", "--timeout", "30"]
        assert subprocess.run(wait, cwd=folder, env=found.environment, check=False).returncode == 0, (tmp_path / "log").read_text()
        yield found
    finally:
        agent.terminate()
        assert agent.wait(10) == 0
        log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
