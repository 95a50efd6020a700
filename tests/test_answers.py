"""What may be made of a refusal."""

from datetime import UTC, datetime

import pytest

from agent.answers import LONGEST, quotes, repeatable, seconds
from agent.model import Secret

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRETS = [Secret("header.payload-0123456789.signature")]


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Thu, 01 Jan 2026 00:00:40 GMT", 40.0),
        ("Thu, 01 Jan 2026 00:00:40 -0000", 40.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("soon", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, wait: float | None) -> None:
    assert seconds(header, NOW) == wait


@pytest.mark.parametrize(
    ("text", "found"),
    [("payload-0123", True), ("see payload-01234 there", True), ("payload-012", False), ("", False), ("PAYLOAD-0123", False)],
)
def test_twelve_characters_of_a_secret_are_a_quotation(text: str, found: bool) -> None:
    assert quotes(text, SECRETS) == found


def test_words_are_repeated_on_one_line_and_not_for_ever() -> None:
    assert repeatable("one\r\ntwo\x1b[2J\u202ex", SECRETS) == "onetwo[2Jx"
    assert len(repeatable("x" * 1000, SECRETS)) == LONGEST
    assert repeatable("the payload-0123456789", SECRETS) == ""
