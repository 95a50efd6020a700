"""What failures say."""

import errno

import pytest

from agent.errors import unreachable

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
def test_why_nobody_was_reached_is_said_in_the_systems_words_whatever_asyncio_makes_of_them(error: OSError, said: str) -> None:
    assert unreachable(error) == said
