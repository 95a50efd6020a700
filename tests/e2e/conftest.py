"""Every test of a whole agent gets one, and leaves none behind."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon import Daemon

MATRIX = re.compile(r"test_(\w+_(clients|files)|link_local\w*|demo)")
"""Modules that go through rotations with unmodified SDKs, or install them: minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks them, and those of the matrix. Those that take more than a minute begin first, each in a worker of its own:
    they mostly wait.
    """
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.e2e)
            if MATRIX.fullmatch(item.path.stem):
                item.add_marker(pytest.mark.matrix)
    long = [item for item in items if (limit := item.get_closest_marker("timeout")) and limit.args[0] > 60]
    items[:] = [item for item in items if item not in long]
    each = len(items) // max(1, len(long))
    for index, item in enumerate(long):
        items.insert(index * (each + 1), item)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """An agent that is not running yet. What still runs at the end of a test that went well has to stop as promised."""
    made = Daemon(tmp_path)
    try:
        yield made
        if made.process:
            made.stop()
    finally:
        made.kill()
