"""No torn file, no missing file, no mixed generation, no orphan, whenever the writer is killed."""

from pathlib import Path

import pytest

from tests.torture.ordeal import Outcome, torture


def judge(outcome: Outcome, generations: int, kills: int) -> None:
    assert outcome.faults == []
    assert outcome.kills >= kills
    assert outcome.interrupted >= kills // 70, "too few kills came in the middle of a write"
    for reader in outcome.readers:
        assert reader["newest"] == generations + 1
        assert reader["reads"] > generations
        assert reader["late"] <= reader["reads"] / 1000
        assert reader["generations"] > generations / 2, "the reader slept through it"


def test_readers_see_whole_generations_while_the_writer_is_killed_and_restarted(tmp_path: Path) -> None:
    judge(torture(tmp_path / "identity", 60, kill_every=8, seed=1), 60, kills=3)


@pytest.mark.torture
def test_the_same_for_2000_generations(tmp_path: Path) -> None:
    judge(torture(tmp_path / "identity", 2000, kill_every=20, seed=2), 2000, kills=70)
