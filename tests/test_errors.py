"""What failures say."""

import errno

import pytest

from agent.errors import MAX_FRAMES, MAX_TEXT_CHARACTERS, Rejected, Unavailable, frames, unreachable, without_context

REFUSED, UNROUTED = "[Errno 111] Connect call failed ('127.0.0.1', 1)", "[Errno 113] Connect call failed ('::1', 1, 0, 0)"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (OSError(f"Multiple exceptions: {REFUSED}, {UNROUTED}, {REFUSED}"), "Connection refused, No route to host"),
        (OSError(-2, "Name or service not known"), "no reason given"),
        (OSError(), "no reason given"),
    ],
)
def test_a_failed_connection_is_explained_in_the_systems_words(error: OSError, said: str) -> None:
    assert unreachable(error) == said


def test_a_failure_is_told_in_two_thousand_characters_at_most():
    failure = Rejected("m" * 40_000, remedy="r" * 40_000)
    assert (len(failure.message), len(failure.remedy)) == (MAX_TEXT_CHARACTERS, MAX_TEXT_CHARACTERS)
    assert len(str(failure)) < 5000


def test_frames_of_a_deep_traceback_fit_one_log_line() -> None:
    def deeper(left: int) -> None:
        if not left:
            raise ValueError
        deeper(left - 1)

    with pytest.raises(ValueError, match=r"^$") as caught:
        deeper(500)
    found = frames(caught.value)
    assert len(found) == MAX_FRAMES + 1
    assert found[0].endswith("test_frames_of_a_deep_traceback_fit_one_log_line")
    assert found[MAX_FRAMES // 2] == f"({502 - MAX_FRAMES} more)"
    assert found[-1].endswith("deeper")
    assert len(frames(ValueError())) == 0


def test_without_context_drops_the_exception_behind_a_failure():
    def refuse():
        with without_context():
            try:
                raise ValueError("a secret")
            except ValueError:
                raise Rejected("refused") from None

    with pytest.raises(Rejected) as caught:
        refuse()
    assert (caught.value.__context__, caught.value.__cause__) == (None, None)


def test_only_unavailable_asks_for_a_pause():
    assert [Unavailable("x", retry_after=3).retry_after, Rejected("x").retry_after] == [3, None]
