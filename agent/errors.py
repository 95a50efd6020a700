"""Failures, named by the reaction they call for.

The message says what failed and why; `remedy` says what a person can type or change. Neither holds a secret.
"""

import os
import re
import traceback

LONGEST_TEXT = 2000
"""Characters of a message or a remedy."""
MAX_FRAMES = 24
"""Of a traceback in the log, half from each end: one line has to hold it."""


class AgentError(Exception):
    """Root of all failures the agent foresees."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class ConfigError(AgentError):
    """The configuration cannot be used: exit 2 at start, refused at reload."""


class RefreshError(AgentError):
    """A source, provider or sink could not do its part. Its texts are cut: some of their words are a token's or a server's."""

    reaction = ""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(_cut(message), remedy=_cut(remedy))


class NotReady(RefreshError):  # noqa: N818  # named by the reaction, as are the next three
    """Expected to pass by itself shortly: try again soon, say it quietly."""

    reaction = "not_ready"


class Unavailable(RefreshError):  # noqa: N818
    """The other side is down or throttling: back off."""

    reaction = "unavailable"

    def __init__(self, message: str, *, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after = retry_after
        """Seconds the other side asked to be left alone, if it did."""


class Rejected(RefreshError):  # noqa: N818
    """Somebody has to change something: try slowly, say it loudly."""

    reaction = "rejected"


class Ended(Rejected):
    """The identity may no longer be had: what it holds is withdrawn at once, and the next attempt is a slow one."""


class Defect(RefreshError):  # noqa: N818
    """An adapter let something through that it should have sorted: a bug, kept to this one identity."""

    reaction = "defect"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def frames(error: BaseException) -> list[str]:
    """Return where an exception came from, innermost last, without its message or any value: those may hold a secret.

    Of more than MAX_FRAMES, the middle is left out.
    """
    stack = list(traceback.walk_tb(error.__traceback__))
    found = [f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}" for frame, line in stack]
    half = MAX_FRAMES // 2
    return found if len(found) <= MAX_FRAMES else [*found[:half], f"({len(found) - 2 * half} more)", *found[-half:]]


def unreachable(error: OSError) -> str:
    """Why a connection could not be made, in the system's words: asyncio puts the address in their place, and joins several failures."""
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return ", ".join(sorted({os.strerror(int(number)) for number in re.findall(r"\[Errno (\d{1,3})\]", str(error))})) or "no reason given"
