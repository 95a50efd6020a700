"""What may be made of a refusal."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from agent.model import Secret
from agent.sanitize import MAX_QUOTED_CHARACTERS, MAX_READ_CHARACTERS, quotes, repeatable, seconds

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
    assert len(repeatable("x" * 1000, SECRETS)) == MAX_QUOTED_CHARACTERS
    assert repeatable("the payload-0123456789", SECRETS) == ""


@pytest.mark.parametrize(
    "header",
    [
        "Mon, 01 Jan 2026 00:00:00 +99999999999999",
        "Fri, 31 Dec 9999 23:59:59 -2359",
        "Mon, 01 Jan 0001 00:00:00 +2359",
        "Mon, 99 Jan 2026 99:99:99 GMT",
        "Thu, 01 Jan 2026 00:00:40 GMT" + " " * 8000,
        "9" * 8000,
        "1e999",
    ],
    ids=lambda header: header[:40],
)
def test_an_absurd_retry_after_is_none_or_at_most_a_day(header: str) -> None:
    wait = seconds(header, NOW)
    assert wait is None or 0 <= wait <= 86400


def test_a_retry_after_of_years_is_a_day() -> None:
    assert seconds("99999999", NOW) == seconds("Fri, 31 Dec 2027 23:59:59 GMT", NOW) == 86400.0


@pytest.mark.parametrize("before", range(MAX_QUOTED_CHARACTERS - 24, MAX_QUOTED_CHARACTERS + 24))
def test_a_secret_at_the_cut_is_shown_by_eleven_characters_at_most(before: int) -> None:
    secret = SECRETS[0].reveal()
    shown = repeatable(" " * before + secret, SECRETS)
    assert not quotes(shown, SECRETS)


def test_a_secret_with_control_characters_in_it_is_not_put_together() -> None:
    assert repeatable("\x00".join("payload-0123456789"), SECRETS) == ""


class Counting(str):
    """Text that knows how much of it was looked at."""

    __slots__ = ()

    looked_at = 0

    def __getitem__(self, part: object) -> str:
        found = super().__getitem__(part)  # type: ignore[index]
        Counting.looked_at += len(found)
        return found

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("read without being cut")

    __contains__ = __iter__  # type: ignore[assignment]


def test_eight_megabytes_of_words_are_cut_before_they_are_read() -> None:
    Counting.looked_at = 0
    assert len(repeatable(Counting("word " * 1_600_000), SECRETS)) == MAX_QUOTED_CHARACTERS
    assert Counting.looked_at <= MAX_READ_CHARACTERS
