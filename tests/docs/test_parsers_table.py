"""The table of parsers in docs/security.md names tests that exist, and every parser that is fuzzed."""

import ast
import re
from functools import cache

import pytest

from tests.docs.conftest import ROOT
from tests.fuzz.test_parsers import NAMES

TEXT = (ROOT / "docs" / "security.md").read_text().partition("<!-- parsers: begin -->")[2].partition("<!-- parsers: end -->")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.strip().splitlines()[2:]]
QUOTED = re.compile(r"`([^`]+)`")


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_bound_has_a_test_that_exists(row: list[str]) -> None:
    _, _, modules, bound, tests = row
    assert bound
    named = QUOTED.findall(tests)
    assert named
    for test in named:
        path, _, name = test.partition("::")
        assert name in functions(path), test
    assert all((ROOT / module).exists() for module in QUOTED.findall(modules))


def test_every_parser_that_is_fuzzed_has_a_row() -> None:
    assert {name for row in ROWS for name in QUOTED.findall(row[1])} == set(NAMES)
