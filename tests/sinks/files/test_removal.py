"""Removal within bounds: what another user made as deep or as full as he could."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.sinks.files import removal
from agent.sinks.files.limits import MAX_DEPTH, MAX_ENTRIES_REMOVED

DEEP = 3000


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, removal.DIRECTORY_FLAGS)
    yield fd
    os.close(fd)
    subprocess.run(["find", str(tmp_path), "-mindepth", "1", "-delete"], check=True)  # pytest's own removal is recursive


def nest(parent: int, name: str, depth: int) -> None:
    parent = os.dup(parent)
    for _ in range(depth):
        os.mkdir(name, dir_fd=parent)
        child = os.open(name, removal.DIRECTORY_FLAGS, dir_fd=parent)
        os.close(parent)
        parent, name = child, "d"
    os.close(parent)


def test_directories_within_the_depth_are_removed(root: int, tmp_path: Path) -> None:
    nest(root, "deep", MAX_DEPTH)
    removal.remove(root, "deep")
    assert list(tmp_path.iterdir()) == []


def test_deeper_directories_are_refused_without_recursion(root: int) -> None:
    nest(root, "deep", DEEP)
    with pytest.raises(OSError, match="nested") as caught:
        removal.remove(root, "deep")
    assert len(caught.traceback) < 3 * MAX_DEPTH


def test_a_full_directory_is_removed_over_several_calls(root: int, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    for number in range(MAX_ENTRIES_REMOVED + 10):
        (tmp_path / "full" / str(number)).touch()
    with pytest.raises(OSError, match="entries"):
        removal.remove(root, "full")
    assert len(list((tmp_path / "full").iterdir())) == 10
    removal.remove(root, "full")
    assert list(tmp_path.iterdir()) == []


def test_crowded_reads_no_more_than_it_has_to(root: int, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).touch()
    assert removal.crowded(root, 4)
    assert not removal.crowded(root, 5)
