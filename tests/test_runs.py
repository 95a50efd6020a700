"""How the suite is run: in parallel, then serially what is marked `alone`, each test once."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import run_again

ROOT = Path(__file__).parent.parent
PLAIN = "def test_plain():\n    pass\n"
MARKED = "import pytest\n\n\n@pytest.mark.alone\ndef test_marked():\n    pass\n"
PYTEST = """#!/bin/sh
echo "$@" >>"$0.log"
case "$*" in
*"--alone only"*) exit {alone} ;;
*) exit {parallel} ;;
esac
"""


@pytest.fixture
def project(tmp_path):
    """Three modules beside the tests' own configuration."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = alone\n")
    (tmp_path / "test_plain.py").write_text(PLAIN)
    (tmp_path / "test_marked.py").write_text(MARKED)
    (tmp_path / "test_both.py").write_text(MARKED + PLAIN)
    return tmp_path


def outcome(project, *arguments):
    """Exit status and the tests that passed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rp", *arguments]
    environment = {"PATH": "", "CI": "", "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    return run.returncode, set(re.findall(r"^PASSED (\S+)", run.stdout, re.MULTILINE))


def test_the_parallel_part_leaves_out_tests_that_are_marked_alone(project):
    assert outcome(project, "--alone=without") == (0, {"test_plain.py::test_plain", "test_both.py::test_plain"})


def test_the_serial_part_runs_only_tests_that_are_marked_alone(project):
    assert outcome(project, "--alone=only") == (0, {"test_marked.py::test_marked", "test_both.py::test_marked"})


def test_the_serial_part_imports_no_module_without_the_mark(project):
    (project / "test_plain.py").write_text("raise RuntimeError")
    assert outcome(project, "--alone=only")[0] == 0


@pytest.mark.parametrize("argument", ["test_plain.py", "test_plain.py::test_plain"])
def test_the_serial_part_of_a_file_without_the_mark_is_empty(project, argument):
    assert outcome(project, "--alone=only", argument) == (5, set())


def test_pytest_without_the_option_runs_every_test(project):
    assert len(outcome(project)[1]) == 4


def made(tmp_path, target, *, parallel, alone, arguments=()):
    """Exit status of make, and the arguments of each run of a stand-in for pytest."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "bin").mkdir()
    pytest_ = tmp_path / "bin" / "pytest"
    pytest_.write_text(PYTEST.format(parallel=parallel, alone=alone))
    pytest_.chmod(0o755)
    command = ["make", f"BIN={tmp_path}/bin", "--old-file=.venv/dev", target, *arguments]
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "dev").touch()
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    return run.returncode, (tmp_path / "bin" / "pytest.log").read_text().splitlines()


@pytest.mark.parametrize(
    ("parallel", "alone", "passes"),
    [(0, 0, True), (0, 5, True), (5, 0, True), (5, 5, False), (1, 0, False), (0, 1, False), (1, 5, False), (5, 1, False), (1, 1, False)],
)
@pytest.mark.parametrize("target", ["test", "matrix"])
def test_make_runs_each_part_once_and_passes_if_both_pass(tmp_path, target, parallel, alone, passes):
    status, runs = made(tmp_path, target, parallel=parallel, alone=alone)
    assert (status == 0) is passes
    assert [("--alone only" in run, "--alone without" in run) for run in runs] == [(False, True), (True, False)]


def test_make_ends_at_once_when_the_parallel_part_is_interrupted(tmp_path):
    status, runs = made(tmp_path, "test", parallel=2, alone=0)
    assert status != 0
    assert len(runs) == 1


def test_make_passes_args_to_both_parts_and_workers_to_the_first(tmp_path):
    _, (first, second) = made(tmp_path, "test", parallel=0, alone=0, arguments=("WORKERS=7", "ARGS=-k word --maxfail=3"))
    assert "-n 7 " in first
    assert "-n 0 " in second
    assert first.endswith("-k word --maxfail=3")
    assert second.endswith("-k word --maxfail=3")


def test_ci_runs_again_only_known_flakes():
    lines = re.findall(r"^make test.*$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert [line.partition("#")[0].strip() for line in lines] == ["make test || .venv/bin/python scripts/run_again.py"]


@pytest.mark.parametrize(
    ("failed", "listed", "passes"),
    [
        (["test_it.py::test_flake"], ["run again"], True),
        (["test_it.py::test_flake[one]"], ["run again"], True),
        (["test_it.py::test_flake", "test_it.py::test_other"], ["not run again", "test_other"], False),
        (["test_it.py::test_flake_of_another_name"], ["not run again"], False),
        ([], ["not run again"], False),
    ],
)
def test_only_named_tests_are_run_again_and_all_are_listed(tmp_path, monkeypatch, capfd, failed, listed, passes):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n\n@pytest.mark.parametrize('x', ['one'])\ndef test_flake(x):\n    pass\n\n\ndef test_other():\n    pass\n"
    )
    cache = tmp_path / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
    known = tmp_path / "known_flakes.txt"
    known.write_text("# its cause\ntest_it.py::test_flake\n")
    monkeypatch.setattr(run_again, "KNOWN", known)
    assert (run_again.main(tmp_path) == 0) is passes
    told = "".join(capfd.readouterr())
    assert all(text in told for text in [*listed, *failed[-1:]])


def test_every_known_flake_is_a_test_with_its_cause():
    lines = run_again.KNOWN.read_text().splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith("#"):
            path, _, name = line.partition("::")
            assert f"def {name}(" in (ROOT / path).read_text(), line
            assert lines[number - 1], f"{line} has a cause above it"
