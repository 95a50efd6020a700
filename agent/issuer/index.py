"""The index of an issuer's keys: which of them count, and since when. Text and terms, no disk."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from agent.issuer.rotation import MAX_LENGTH_SECONDS, Term
from agent.parsing import json_object

VERSION = 1
MAX_INDEX_BYTES = 256 * 1024
"""A thousand keys: one for each month of eighty years."""
MAX_KEYS = 1000
YEARS = range(2000, 2500)
"""Of the times in an index. With these, and lengths of ten years at most, no sum leaves the calendar."""
KID = re.compile(r"[A-Za-z0-9_.~-]{1,128}", re.ASCII)
"""A part of a file's name."""


def encode(terms: Sequence[Term]) -> bytes:
    """As it lies on disk."""
    entries = [
        {
            "kid": term.kid,
            "publishedAt": term.published_at.isoformat(),
            "signsFrom": term.signs_from.isoformat(),
            "longestLifetime": term.longest_lifetime,
        }
        for term in terms
    ]
    return json.dumps({"version": VERSION, "keys": entries}, indent=1).encode() + b"\n"


def decode(text: bytes) -> list[Term]:
    """In the order in which they sign. Raises ValueError, which says what it is instead."""
    document = json_object(text, longest=MAX_INDEX_BYTES) or {}
    version = document.get("version")
    if isinstance(version, int) and version != VERSION:
        raise ValueError(f"has the version {version!r}, not {VERSION}")
    try:
        entries = document["keys"]
        if version != VERSION or not isinstance(entries, list) or len(entries) > MAX_KEYS:
            raise ValueError  # noqa: TRY301  # one message for all that can be wrong
        terms = [_term(entry) for entry in entries]
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ValueError("is not the index that the agent wrote") from None
    return sorted(terms, key=lambda term: term.signs_from)


def _term(entry: Mapping[str, Any]) -> Term:
    """Raises ValueError, KeyError, TypeError or OverflowError."""
    term = Term(
        kid=str(entry["kid"]),
        published_at=datetime.fromisoformat(entry["publishedAt"]),
        signs_from=datetime.fromisoformat(entry["signsFrom"]),
        longest_lifetime=float(entry["longestLifetime"]),
    )
    times = (term.published_at, term.signs_from)
    if not all(time.tzinfo and time.year in YEARS for time in times) or not KID.fullmatch(term.kid):
        raise ValueError
    if not 0 < term.longest_lifetime <= MAX_LENGTH_SECONDS:
        raise ValueError
    return term
