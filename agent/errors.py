"""Failures, named by the reaction they call for.

The message says what failed and why; `remedy` says what a person can type or change. Neither holds a secret.
"""

import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

MAX_TEXT_CHARACTERS = 2000
"""Of a message or a remedy."""
MAX_FRAMES = 24
"""Of a traceback in the log, half from each end: one line has to hold it."""


class Reaction(StrEnum):
    """What a failed refresh or delivery calls for; also the `result` in metrics, status and logs."""

    NOT_READY = "not_ready"
    UNAVAILABLE = "unavailable"
    REJECTED = "rejected"
    DEFECT = "defect"

    @property
    def needs_a_change(self) -> bool:
        """Whether the failure lasts until a person changes something."""
        return self in {Reaction.REJECTED, Reaction.DEFECT}


class AgentError(Exception):
    """Root of all failures the agent foresees."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class ConfigError(AgentError):
    """The configuration is invalid: the agent exits with 2 at start, and keeps the old one at a reload."""


class RefreshError(AgentError):
    """A source, provider or sink has failed. The texts are cut, because they quote tokens and servers."""

    reaction: Reaction
    retry_after: float | None = None
    """Seconds for which the other side asked not to be called again, if it did; only `Unavailable` has them."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(_cut(message), remedy=_cut(remedy))


class NotReady(RefreshError):  # noqa: N818  # named by the reaction, as are the next three
    """A state that is expected to pass by itself: the keeper retries soon and logs it as information."""

    reaction = Reaction.NOT_READY


class Unavailable(RefreshError):  # noqa: N818
    """The other side is down or limits the rate of requests: the keeper backs off."""

    reaction = Reaction.UNAVAILABLE

    def __init__(self, message: str, *, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after = retry_after


class Rejected(RefreshError):  # noqa: N818
    """A person has to change something: the keeper retries slowly and logs an error."""

    reaction = Reaction.REJECTED


class Ended(Rejected):
    """The identity has ended: the keeper withdraws what it holds at once and retries slowly."""


class Defect(RefreshError):  # noqa: N818
    """An adapter raised an exception that is not a RefreshError: a bug, which only this identity suffers."""

    reaction = Reaction.DEFECT


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARACTERS else f"{text[: MAX_TEXT_CHARACTERS - 1]}…"


@contextmanager
def without_context() -> Iterator[None]:
    """Raise the failure of the block without the exception that it was raised for.

    That one may hold a secret, and `from None` only hides it: reporters of tracebacks still follow `__context__`.
    """
    try:
        yield
    except Exception as error:
        error.__cause__ = error.__context__ = None
        raise


def frames(error: BaseException) -> list[str]:
    """Return the frames of an exception, innermost last, without message or values: those may hold a secret.

    Of more than MAX_FRAMES, the middle is left out.
    """
    stack = list(traceback.walk_tb(error.__traceback__))
    found = [f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}" for frame, line in stack]
    half = MAX_FRAMES // 2
    return found if len(found) <= MAX_FRAMES else [*found[:half], f"({len(found) - 2 * half} more)", *found[-half:]]


def unreachable(error: OSError) -> str:
    """Return why a connection failed, in the system's words.

    asyncio replaces those words by the address, and joins the failures of several addresses into one text.
    """
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return ", ".join(sorted({os.strerror(int(number)) for number in re.findall(r"\[Errno (\d{1,3})\]", str(error))})) or "no reason given"
