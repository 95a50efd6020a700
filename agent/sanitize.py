"""Parts of a refusal that the agent uses: the time to wait, and the words that can be repeated. Both are cut before they are read."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agent.model import Secret

QUOTED = 12
"""Characters in a row of a secret that make a text unfit to be shown."""
MAX_QUOTED_CHARACTERS = 400
"""Of a foreign text that the agent repeats."""
MAX_READ_CHARACTERS = 4096
"""Of a foreign text that the agent reads: later ones could only be shown if all of these steered a terminal."""
MAX_RETRY_AFTER_CHARACTERS = 64
"""The longest form of a date has fewer than 40."""
MAX_RETRY_AFTER_SECONDS = 86400.0


def seconds(header: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After (RFC 9110, section 10.2.3): a number or a date, at most a day; None if it is neither."""
    if len(header) > MAX_RETRY_AFTER_CHARACTERS:
        return None
    try:
        wait = float(header)
    except ValueError:
        wait = _until(header, now)
    return min(max(0.0, wait), MAX_RETRY_AFTER_SECONDS) if math.isfinite(wait) else None


def _until(date: str, now: datetime) -> float:
    """Return the seconds until then, NaN if it is not a date. For absurd dates the email package raises all of these."""
    try:
        moment = parsedate_to_datetime(date)
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    except (ValueError, TypeError, LookupError, ArithmeticError):
        return math.nan


def quotes(text: str, secrets: Sequence[Secret]) -> bool:
    """Return whether any stretch of a secret stands in the text, which the caller has cut. Clouds quote what they find malformed."""
    stretches = {text[start : start + QUOTED] for start in range(max(1, len(text) - QUOTED + 1))}
    return any(len(stretch) == QUOTED and stretch in secret.reveal() for secret in secrets for stretch in stretches)


def repeatable(text: str, secrets: Sequence[Secret]) -> str:
    """Return the words as one line of at most `MAX_QUOTED_CHARACTERS` characters; empty if they repeat a secret.

    The search for secrets goes over what could be shown and one stretch beyond, so a secret at the cut is found; and over
    the text without its control characters, since a secret with those between its letters would be whole when shown.
    """
    shown = plain(text[:MAX_READ_CHARACTERS])[: MAX_QUOTED_CHARACTERS + QUOTED]
    return "" if quotes(shown, secrets) else shown[:MAX_QUOTED_CHARACTERS]


def plain(text: str) -> str:
    """In one line, without anything that could steer a terminal: no control character, and none that turns the writing round."""
    return "".join(filter(str.isprintable, text))


def lines(text: str) -> str:
    """As `plain`, where the line breaks are the agent's own."""
    return "\n".join(map(plain, text.split("\n")))
