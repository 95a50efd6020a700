"""JSON of a stranger's, parsed within bounds: bytes, depth and digits."""

import json
import math
from typing import Any

LONGEST_BYTES = 256 * 1024
"""Of a document, unless the caller names its own bound."""
DEEPEST_LEVELS = 64
"""Of nesting: no service that the agent asks nests deeper than ten."""
LONGEST_DIGITS = 20
"""Of a whole number: 2^64 has twenty. Python takes time that grows with the square of the digits, and refuses 4,301."""


def json_object(body: bytes | str, *, longest: int = LONGEST_BYTES) -> dict[str, Any] | None:
    """Return the JSON object in the body; None if there is none, or one beyond the bounds.

    A whole number of more than `LONGEST_DIGITS` is read as infinite, as Python's json reads `1e999`.
    """
    if len(body) > longest:
        return None
    try:
        text = body if isinstance(body, str) else body.decode("utf-8-sig")
        found = json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and (_brackets(text) <= DEEPEST_LEVELS or _levels(found) <= DEEPEST_LEVELS) else None


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= LONGEST_DIGITS else math.copysign(math.inf, -1 if digits.startswith("-") else 1)


def _brackets(text: str) -> int:
    return text.count("{") + text.count("[")


def _levels(root: object) -> int:
    """Return the depth, or one beyond `DEEPEST_LEVELS`, without recursion."""
    level, depth = [root], 0
    while level and depth <= DEEPEST_LEVELS:
        depth += 1
        below = [child for node in level for child in (node.values() if isinstance(node, dict) else node)]  # type: ignore[attr-defined]
        level = [child for child in below if isinstance(child, dict | list)]
    return depth
