"""What the project promises about itself: its locks, its sizes, its names, its papers."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "agent").rglob("*.py"))
BANNED = {"base", "common", "data", "handler", "helper", "helpers", "impl", "info", "manager", "utils"}
# Image registries and package indexes, with a gap so that this file does not name what it looks for.
REGISTRIES = [
    host.replace("__", ".")
    for host in (
        *("docker__io", "quay__io", "gcr__io", "ghcr__io", "registry.k8s__io", "mcr.microsoft__com", "public.ecr__aws"),
        *("pypi__org", "pythonhosted__org", "conda.anaconda__org", "proxy.golang__org", "registry.npmjs__org"),
    )
]
MACHINE = re.compile(r"(?<![\w./-])/(work|root|Users|home/\w+)/\w")


def tracked() -> list[Path]:
    """Every text file in git, but the licence, which is not ours to word."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [ROOT / name for name in names if name and name != "LICENSE" and (ROOT / name).is_file()]


def test_the_locks_name_no_index_and_every_package_has_a_hash():
    for lock in (ROOT / "requirements.lock", ROOT / "requirements-dev.lock"):
        text = lock.read_text()
        assert "://" not in text
        assert "--index-url" not in text
        pins = re.findall(r"^[a-z0-9][^\n]*==[^\n]*$", text, re.MULTILINE)
        assert pins
        assert all(pin.endswith("\\") for pin in pins)


def test_the_development_lock_holds_the_other_with_the_same_versions():
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^([a-z0-9][^\s]*==[^\s]+)", (ROOT / name).read_text(), re.MULTILINE))

    assert pins("requirements.lock") <= pins("requirements-dev.lock")


def test_every_dependency_of_the_project_is_in_its_lock():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def missing(requirements: list[str], lock: str) -> list[str]:
        names = {re.split(r"[\[>=<~! ]", requirement)[0].lower().replace("_", "-") for requirement in requirements}
        locked = {name.lower() for name in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==", (ROOT / lock).read_text(), re.MULTILINE)}
        return sorted(names - locked)

    assert not missing(project["dependencies"], "requirements.lock")
    assert not missing(project["optional-dependencies"]["dev"], "requirements-dev.lock")


def test_no_file_names_a_registry_or_somebodys_machine():
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if any(registry in line for registry in REGISTRIES) or MACHINE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert not found


@pytest.mark.parametrize(
    "line", ["cd /work" + "/main", "FROM quay" + ".io/x", "see /home" + "/someone/x", "index https://pypi" + ".org/simple"]
)
def test_the_search_for_registries_and_machines_finds_them(line):
    assert any(registry in line for registry in REGISTRIES) or MACHINE.search(line)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short_and_named_by_a_noun(module):
    assert len(module.read_text().splitlines()) <= 400
    assert module.stem.strip("_") not in BANNED


def test_every_package_of_the_agent_is_a_package():
    assert [folder for folder in {module.parent for module in MODULES} if not (folder / "__init__.py").exists()] == []


def test_the_changelog_is_kept():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "\n## [Unreleased]\n" in text
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }


@pytest.mark.parametrize("paper", ["README.md", "CONTRIBUTING.md"])
def test_the_papers_name_only_targets_that_make_knows(paper):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^\s*(?:\$ )?make ([a-z]+)|`make ([a-z]+)", (ROOT / paper).read_text(), re.MULTILINE))
    assert {first or second for first, second in named} <= targets


def test_the_papers_name_only_commands_that_the_agent_knows():
    if not (ROOT / "agent" / "__main__.py").exists():
        pytest.skip("there is no command line yet")
    usage = subprocess.run([sys.executable, "-m", "agent", "--help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for paper in (ROOT / "README.md", ROOT / "Makefile", *sorted((ROOT / "docs").glob("**/*.md"))):
        for command in re.findall(r"(?:^|[`/ ])wi-agent(?: -c \S+)? ([a-z]+)\b", paper.read_text(), re.MULTILINE):
            assert re.search(rf"\b{command}\b", usage), f"{paper.name} says wi-agent {command}"


def test_the_image_runs_as_nobody_in_particular_and_is_made_of_what_is_pinned():
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)).splitlines()
    instructions = [line.split(None, 1) for line in lines if line.strip()]
    last_stage = max(index for index, instruction in enumerate(instructions) if instruction[0] == "FROM")
    assert ["USER", "65532:65532"] in instructions[last_stage:]
    assert ["ENTRYPOINT", '["wi-agent"]'] in instructions[last_stage:]
    assert not [instruction for instruction in instructions if instruction[0] == "ADD"]
    stages = [instruction[1].split() for instruction in instructions if instruction[0] == "FROM"]
    assert stages[0][1:] == ["AS", "base"]
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", stages[0][0])
    assert {stage[0] for stage in stages[1:]} == {"base"}, "one digest for all stages"
    last = [instruction[1] for instruction in instructions[last_stage:] if instruction[0] == "RUN"]
    assert any("pip --no-cache-dir uninstall --quiet --yes pip" in run and "-perm /6000" in run for run in last)
    python = stages[0][0].partition(":")[2].partition("-")[0]
    assert set(re.findall(r"python(3\.\d+)/", "".join(lines))) == {python}
    installs = [line for line in lines if "pip install" in line]
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)


@pytest.mark.parametrize(
    ("answer", "renewed"), [("sha256:" + "a" * 64, True), ("sha256:a", False), ("", False), ("sha256:" + "a" * 64 + "/x", False)]
)
def test_the_bases_digest_is_renewed_in_one_place_and_by_nothing_else(tmp_path, answer, renewed):
    for name in ("Makefile", "Dockerfile"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    docker = tmp_path / "docker"
    docker.write_text(
        f'#!/bin/sh\ntest "$*" = "buildx imagetools inspect --format {{{{.Manifest.Digest}}}} python:3.13-slim" && echo "{answer}"\n'
    )
    docker.chmod(0o755)
    before = (tmp_path / "Dockerfile").read_text()
    done = subprocess.run(["make", "base", f"DOCKER={docker}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    after = (tmp_path / "Dockerfile").read_text()
    assert (done.returncode == 0) is renewed, done.stderr
    assert after == (re.sub(r"@sha256:[0-9a-f]{64}", f"@{answer}", before) if renewed else before)


def test_the_image_takes_only_what_it_is_made_of():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    taken = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = set(re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert taken == {name for line in copied for name in line.split()}


SKIPPING = {
    "a test": "import pytest\ndef test_it():\n    pytest.skip('no moon')\n",
    "a module": "import pytest\npytest.importorskip('no_such_moon')\ndef test_it():\n    pass\n",
}


@pytest.mark.parametrize("what", SKIPPING)
@pytest.mark.parametrize(("ci", "passes"), [("true", False), ("", True)])
def test_where_ci_is_set_a_skip_is_a_failure_with_its_reason(tmp_path, what, ci, passes):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_skipping.py").write_text(SKIPPING[what])
    (tmp_path / "test_passing.py").write_text("def test_that():\n    pass\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        cwd=tmp_path,
        env={"PATH": "", "CI": ci, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode == 0) is passes, run.stdout
    if not passes:
        assert "moon" in run.stdout
