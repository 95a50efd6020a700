"""What can be made of a refusal, whoever sent it: how long to wait, and which of its words can be repeated."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agent.model import Secret
from agent.plain import plain

QUOTED = 12
"""Characters in a row of a secret that make a text unfit to be shown."""
LONGEST = 400
"""Characters of somebody else's words that are repeated."""


def seconds(header: str, now: datetime) -> float | None:
    """Retry-After (RFC 9110, section 10.2.3) in seconds: a number or a date; None where it is neither."""
    try:
        wait = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        wait = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    return max(0.0, wait) if math.isfinite(wait) else None


def quotes(text: str, secrets: Sequence[Secret]) -> bool:
    """Whether any stretch of a secret stands in the text. Clouds quote what they find malformed."""
    stretches = {text[start : start + QUOTED] for start in range(max(1, len(text) - QUOTED + 1))}
    return any(len(stretch) == QUOTED and stretch in secret.reveal() for secret in secrets for stretch in stretches)


def repeatable(text: str, secrets: Sequence[Secret]) -> str:
    """The words as one line of at most `LONGEST` characters; empty where they repeat a secret."""
    return "" if quotes(text, secrets) else plain(text)[:LONGEST]
