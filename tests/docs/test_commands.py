"""Every command in the documents is run, in order, as a reader would type it; what they show of its output has to come."""

import os
import re
import shutil
import subprocess

import pytest

from tests.docs.conftest import PAPERS, ROOT, blocks, names

STARTS = "make run"
"""The fixture has done that already, with the same command."""
WATCH = re.compile(r" --watch$")
EXITS = re.compile(r"\s+# exits (\d)$")


def steps(text: str) -> list[tuple[str, int, list[str]]]:
    """Each command of a block, how it has to end, and the lines that are shown under it."""
    found: list[tuple[str, int, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            status = EXITS.search(line)
            found.append((EXITS.sub("", line[2:]), int(status[1]) if status else 0, []))
        elif line.strip():
            found[-1][2].append(line)
    return found


def like(shown: str) -> re.Pattern[str]:
    """Numbers may be others, blanks more or fewer; `…` stands for anything."""
    parts = [re.escape(part) for part in re.split(r"\d+|\s+|…", shown.strip())]
    between = [r"\d+" if found.isdigit() else ".*" if found == "…" else r"\s+" for found in re.findall(r"\d+|\s+|…", shown.strip())]
    return re.compile("".join(part + (between[index] if index < len(between) else "") for index, part in enumerate(parts)))


def typed(command: str, place, environment: dict[str, str]) -> tuple[int, str]:
    """Runs it in a shell, and takes over what it exports."""
    script = f"{command}\nstatus=$?\nenv -0 > ../environment\nexit $status\n"
    run = subprocess.run(["sh", "-c", script], cwd=place.folder, env=environment, capture_output=True, text=True, timeout=50, check=False)
    after = dict(entry.split("=", 1) for entry in (place.folder.parent / "environment").read_text().split("\0") if "=" in entry)
    locals_ = re.match(r"(\w+)=\$\(", command)  # a shell's own variable, which the next command wants too
    if locals_:
        value = subprocess.run(
            ["sh", "-c", f'{command}\nprintf %s "${locals_[1]}"'],
            cwd=place.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        after[locals_[1]] = value.stdout
    environment.clear()
    environment.update(after)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.e2e
@pytest.mark.timeout(180)
@pytest.mark.parametrize("paper", [paper for paper in PAPERS if blocks(paper, "console")], ids=names)
def test_every_command_of_a_paper_does_what_the_paper_shows(place, paper):
    environment = dict(place.environment)
    if paper.parent != ROOT:
        environment["WI_AGENT_CONFIG"] = "config.example.yaml"
    for block in blocks(paper, "console"):
        for command, status, shown in steps(place.moved(block)):
            if command == STARTS:
                assert "wi-agent run -c config.example.yaml" in (ROOT / "Makefile").read_text()
                continue
            if command.startswith("promtool ") and shutil.which("promtool") is None and not os.environ.get("CI"):
                continue  # Debian's prometheus is not what a fresh clone may ask for
            ended, output = typed(WATCH.sub("", command), place, environment)
            assert ended == status, f"{command}: exit status {ended}, {status} expected:\n{output}"
            for line in shown:
                pattern = like(line)
                assert any(pattern.fullmatch(each.strip()) for each in output.splitlines()), (
                    f"{command}: no line like {line!r} in:\n{output}"
                )


@pytest.mark.parametrize(
    ("shown", "line", "fits"),
    [
        ("watch-me  fresh  …", "watch-me   fresh  2s  57s", True),
        ("watch-me  fresh  …", "watch-me   stale  2s  57s", False),
        ("..2026_11_21.…", "..2027_01_02.735dc", True),
        ("a.b", "axb", False),
    ],
)
def test_what_is_shown_is_compared_but_for_numbers_and_blanks(shown, line, fits):
    assert bool(like(shown).fullmatch(line)) is fits
