"""Lines of code and documents that break the language rules of CONTRIBUTING.md.

`python -m tests.language agent/serving docs` lists those of some folders or files, without arguments all of them.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECKED = ("agent/", "docs/", "charts/", "README.md", "CHANGELOG.md")
"""CONTRIBUTING.md quotes the words in its glossary, tests quote what foreign programs send."""
MAX_TEST_NAME_CHARACTERS = 80
RULES = {
    "name the actor": r"\b(whoever|somebody|nobody|whosoever)\b",
    "say timeout": r"\bpatience\b|\bPATIENCE\b",
    "say 'is not a', 'is invalid' or 'is missing'": (
        r"\bis none of\b|(?<!there )\b(is|are) no (?!longer\b|(more|less|later|earlier) than\b)[a-z]"
    ),
    "say returned or served": r"\bhand(ed|s)? out\b",
    "say stored in": r"\b(lies|lie) in\b",
    "say closed, stopped or withdrawn": r"\b(gives? way|lets? go)\b",
    "say retried": r"\btried again\b|\basked anew\b",
    "say logged, reported or configured": r"\b(is|are) told\b",
    "start the sentence with an actor": (
        r"(?:^\W*|[.:;!]\s+)(?:Who|What|Whom|Whose)\b(?![^.]*\?)[^.:;]*\b(?:does|is|has|may|reads|asks|sends|holds|waits|cannot)\b"
    ),
    "name the constant's meaning and unit": r"^_?(PATIENCE|LONGEST|LARGEST|LEAST|SOONEST|ABSURD|MOST)\b",
}
EXCEPTIONS: dict[str, str] = {}
"""A part of the line → why it stays."""


@dataclass(frozen=True)
class Hit:
    """One line that breaks one rule."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text.strip()[:140]}"


def tracked(*folders: str) -> list[str]:
    """Return the files in git, sorted; of some folders only, if any is given."""
    run = subprocess.run(["git", "ls-files", "-z", "--", *folders], cwd=ROOT, check=True, capture_output=True, text=True)
    return sorted(name for name in run.stdout.split("\0") if name and (ROOT / name).is_file())


def broken(text: str) -> list[str]:
    """Return the rules that one line breaks."""
    if any(part in text for part in EXCEPTIONS):
        return []
    return [rule for rule, pattern in RULES.items() if re.search(pattern, text)]


def hits(*folders: str) -> Iterator[Hit]:
    """Return the lines that break a rule, in the files that the rules hold for."""
    for name in tracked(*folders):
        if not name.startswith(CHECKED) or not name.endswith((".py", ".md", ".yaml", ".tpl", ".txt", ".json", ".html")):
            continue
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            for rule in broken(line):
                yield Hit(name, number, rule, line)


def long_test_names(*folders: str) -> Iterator[Hit]:
    """Return the tests whose names are longer than MAX_TEST_NAME_CHARACTERS."""
    for name in tracked(*folders):
        if name.startswith("tests/") and name.endswith(".py"):
            for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
                found = re.match(r"\s*(?:async )?def (test_\w+)\(", line)
                if found and len(found[1]) > MAX_TEST_NAME_CHARACTERS:
                    yield Hit(name, number, f"a name of at most {MAX_TEST_NAME_CHARACTERS} characters", found[1])


if __name__ == "__main__":
    all_hits = [*hits(*sys.argv[1:]), *long_test_names(*sys.argv[1:])]
    for hit in all_hits:
        print(hit)  # noqa: T201  # its only output
    sys.exit(bool(all_hits))
