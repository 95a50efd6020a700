"""The language rules of CONTRIBUTING.md, held line by line; `python -m tests.language FOLDER` lists what breaks them."""

import json
import subprocess
from collections import Counter

import pytest

from tests.language import ROOT, broken, hits, long_test_names

MAX_SUBJECT_CHARACTERS = 72
ALLOWED: dict[str, int] = json.loads((ROOT / "tests" / "language_allowance.json").read_text())
"""Lines that a file may still hold; a number may only shrink."""


def test_no_line_breaks_the_language_rules():
    found = list(hits())
    counts = Counter(hit.path for hit in found)
    beyond = {path for path, count in counts.items() if count > ALLOWED.get(path, 0)}
    assert not [str(hit) for hit in found if hit.path in beyond]


def test_test_names_are_short():
    found = list(long_test_names())
    counts = Counter(hit.path for hit in found)
    beyond = {path for path, count in counts.items() if count > ALLOWED.get(path, 0)}
    assert not [str(hit) for hit in found if hit.path in beyond]


def test_commit_subjects_are_short():
    def git(*arguments: str) -> list[str]:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()

    first = git("log", "--diff-filter=A", "--format=%H", "--", "tests/test_language.py")[-1:]  # a shallow clone's root, if it is shallow
    subjects = git("log", "--no-merges", "--format=%s", f"{first[0]}..HEAD") if first else []
    assert not [subject for subject in subjects if len(subject) > MAX_SUBJECT_CHARACTERS]


@pytest.mark.parametrize(
    "line",
    [
        '"""The identities that are whoever their ServiceAccount says."""',
        "this is no pod",
        "x is none of tenancy.namespaces",
        "PATIENCE = 10.0",
        "LONGEST = 64 * 1024",
        "Who holds connections and says nothing keeps no SDK out.",
        "    # Nothing more. What it holds has to be withdrawn.",
        "the oldest connection gives way",
        "the place that it lies in",
        "the credential is handed out",
        "it is tried again",
    ],
)
def test_the_rules_find_the_language_that_they_forbid(line):
    assert broken(line)


@pytest.mark.parametrize(
    "line",
    ["the file is no longer there", "there is no such file", "What does it do, and who has to act?", "a nobody_user", "MAX_BYTES = 3"],
)
def test_the_rules_leave_plain_english_alone(line):
    assert not broken(line)
