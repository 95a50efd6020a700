"""Leftovers in a directory that another user fills: what one sweep costs, counted in operations."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from agent.sinks.files import removal, retention
from agent.sinks.files.retention import Retention
from tests.fakes import START, FakeClock


class CountedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, removal.DIRECTORY_FLAGS)
    yield fd
    os.close(fd)


def make(directory: Path, name: str, age: float) -> str:
    (directory / name).mkdir()
    moment = START.timestamp() - age
    os.utime(directory / name, (moment, moment))
    return name


def test_a_sweep_compares_each_generation_a_few_times(root: int, tmp_path: Path) -> None:
    number = 400
    for count in range(number):
        make(tmp_path, f"..2020_01_01_00_00_00.{count:04x}", 5 + count / 1000)
    live = CountedName(make(tmp_path, "..2026_01_01_00_00_00.abc", 1))
    CountedName.compared = 0
    Retention(FakeClock(), 30, structlog.get_logger()).sweep(root, live)
    assert CountedName.compared < 10 * number
    assert len(list(tmp_path.iterdir())) == retention.KEPT + 1


def test_later_sweeps_look_at_a_bounded_number_of_entries(root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_ENTRIES_LOOKED_AT", 10)
    live = make(tmp_path, "..2026_01_01_00_00_00.abc", 40)
    swept = Retention(FakeClock(), 30, structlog.get_logger())
    make(tmp_path, "..2025_01_01_00_00_00.abc", 60)
    swept.sweep(root, live)
    assert [path.name for path in tmp_path.iterdir()] == [live]
    for count in range(50):
        make(tmp_path, f"..2020_01_01_00_00_00.{count:04x}", 100)
    swept.sweep(root, live)
    assert 41 <= len(list(tmp_path.iterdir())) <= 42
    for _ in range(6):
        swept.sweep(root, live)
    assert [path.name for path in tmp_path.iterdir()] == [live]


def test_a_replaced_generation_goes_in_time_however_full_the_directory(root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_ENTRIES_LOOKED_AT", 0)
    clock = FakeClock()
    swept = Retention(clock, 30, structlog.get_logger())
    swept.sweep(root, None)
    before, live = make(tmp_path, "..2026_01_01_00_00_00.a", 9), make(tmp_path, "..2026_01_01_00_00_09.b", 0)
    swept.replaced(before)
    clock.jump(29)
    swept.sweep(root, live)
    assert (tmp_path / before).exists()
    clock.jump(2)
    swept.sweep(root, live)
    assert [path.name for path in tmp_path.iterdir()] == [live]
