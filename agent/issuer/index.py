"""The index of an issuer's keys: which of them count, and since when. Text and terms, no disk."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from agent.issuer.rotation import Term

VERSION = 1


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
    try:
        document = json.loads(text)
        version = document["version"]
        terms = [_term(entry) for entry in document["keys"]] if version == VERSION else []
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("is not the index that the agent wrote") from None
    if version != VERSION:
        raise ValueError(f"has the version {version!r}, not {VERSION}")
    return sorted(terms, key=lambda term: term.signs_from)


def _term(entry: Mapping[str, Any]) -> Term:
    """Raises ValueError, KeyError or TypeError."""
    term = Term(
        kid=str(entry["kid"]),
        published_at=datetime.fromisoformat(entry["publishedAt"]),
        signs_from=datetime.fromisoformat(entry["signsFrom"]),
        longest_lifetime=float(entry["longestLifetime"]),
    )
    if not term.published_at.tzinfo or not term.signs_from.tzinfo or "/" in term.kid:
        raise ValueError
    return term
