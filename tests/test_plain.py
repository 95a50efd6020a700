"""What stays of a text that a terminal is given."""

import pytest

from agent.sanitize import lines, plain


@pytest.mark.parametrize(
    "steering",
    ["\x1b[2J", "\x1b]0;title\x07", "\r", "\n", "\x9b31m", "\u202e", "\u2028", "\x85", "\x00", "\x7f"],
)
def test_nothing_stays_that_a_terminal_obeys(steering: str) -> None:
    shown = plain(f"a{steering}é → b")
    assert shown.isprintable()
    assert (shown[0], shown[-5:]) == ("a", "é → b")
    assert lines(f"one{steering}\ntwo").count("\n") == (2 if steering == "\n" else 1)
