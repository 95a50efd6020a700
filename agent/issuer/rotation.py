"""When each of the issuer's keys is published, signs, retires and goes. Arithmetic only.

Keys follow one another: each signs from its own moment until the next one's. It is published `publish_before` ahead
of that, so that every verifier's cached copy of the key set knows it by then, and it stays published until the last
token it can have signed has expired and the caches have turned over once more. All of it follows from the timestamps
in the terms, so that a restart, or a clock that was set, changes nothing that was decided.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

CACHE = 3600.0
"""Seconds for which a verifier may keep the key set; Gardener's discovery server allows one hour too."""

MAX_LENGTH_SECONDS = 3650 * 86400.0
"""Of a token's life, and between two keys. Longer ones lead beyond the calendar, and no key should serve so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How keys follow one another, all in seconds."""

    every: float
    publish_before: float
    longest_lifetime: float
    """Of the tokens that are signed."""
    cache: float = CACHE


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The life of one key, UTC. Sequences of terms are in the order of `signs_from`."""

    kid: str
    published_at: datetime
    signs_from: datetime
    longest_lifetime: float
    """Seconds: of the tokens it may have signed, also under a configuration that has since been made stricter."""


def first_term(kid: str, now: datetime, rhythm: Rhythm) -> Term:
    """A first key signs at once: no verifier can have cached a key set that lacks it, since there was none."""
    return Term(kid=kid, published_at=now, signs_from=now, longest_lifetime=rhythm.longest_lifetime)


def next_term(terms: Sequence[Term], kid: str, now: datetime, rhythm: Rhythm, *, replaces: bool = False) -> Term:
    """The term of a key that is published now: in its turn, or as soon after as it has been published long enough.

    `replaces`: not in its turn but as soon as may be, because the newest key is of an algorithm no longer wanted.
    """
    newest = terms[-1].signs_from
    turn = newest + timedelta(seconds=rhythm.publish_before if replaces else rhythm.every)
    signs_from = max(turn, now + timedelta(seconds=rhythm.publish_before))
    return Term(kid=kid, published_at=now, signs_from=signs_from, longest_lifetime=rhythm.longest_lifetime)


def next_turn(terms: Sequence[Term], rhythm: Rhythm) -> datetime:
    """When the key after the newest should sign; it never signs before this."""
    return terms[-1].signs_from + timedelta(seconds=rhythm.every)


def publish_due(terms: Sequence[Term], rhythm: Rhythm) -> datetime:
    """When the key after the newest should be published."""
    return next_turn(terms, rhythm) - timedelta(seconds=rhythm.publish_before)


def signing(terms: Sequence[Term], now: datetime) -> int:
    """The place of the key that signs: the newest whose moment has come.

    A clock set back makes the one before sign again, which is still published. Set back beyond all of them, the
    oldest signs: it has been published the longest.
    """
    return max((place for place, term in enumerate(terms) if term.signs_from <= now), default=0)


def gone_at(terms: Sequence[Term], place: int, rhythm: Rhythm) -> datetime | None:
    """When the key has no living token any more and no cache needs it; None while no other follows it."""
    if place + 1 >= len(terms):
        return None
    return terms[place + 1].signs_from + timedelta(seconds=terms[place].longest_lifetime + rhythm.cache)


def spent(terms: Sequence[Term], now: datetime, rhythm: Rhythm) -> list[str]:
    """The keys to drop. Never the one that signs, nor one after it."""
    ends = [(term, gone_at(terms, place, rhythm)) for place, term in enumerate(terms[: signing(terms, now)] if terms else ())]
    return [term.kid for term, end in ends if end and end <= now]


def dated_ahead(terms: Sequence[Term], now: datetime, rhythm: Rhythm) -> str | None:
    """The newest key, where it was made by a clock that ran ahead: rotation waits until the clock gets there.

    It is not dated anew: a clock that is wrong now looks the same, and would cut short what the key before it needs.
    """
    furthest = now + timedelta(seconds=rhythm.every + rhythm.publish_before)
    return terms[-1].kid if terms and terms[-1].signs_from > furthest else None


def phases(terms: Sequence[Term], now: datetime) -> list[tuple[str, str, datetime]]:
    """(kid, state, since) of each key; the states are `published`, `signing` and `retired`."""
    current = signing(terms, now)
    return [
        (term.kid, "signing", term.signs_from)
        if place == current
        else (term.kid, "published", term.published_at)
        if place > current
        else (term.kid, "retired", terms[place + 1].signs_from)
        for place, term in enumerate(terms)
    ]


def next_change(terms: Sequence[Term], now: datetime, rhythm: Rhythm) -> datetime:
    """The next moment at which a key is published, begins to sign, or goes."""
    ends = [gone_at(terms, place, rhythm) for place in range(len(terms))]
    moments = [publish_due(terms, rhythm), *(term.signs_from for term in terms), *(end for end in ends if end)]
    return min((moment for moment in moments if moment > now), default=now)
