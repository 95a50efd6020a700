"""Due times, retry delays and staleness. Arithmetic only; see docs/concepts.md."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random

from agent.errors import Reaction

UNCHANGED_FLOOR = 30.0
"""Seconds. Never repeat a refresh sooner that brought nothing newer."""
MIN_REFRESH_INTERVAL = 1.0
"""Seconds. Never refresh again sooner than this after a fetch, whatever the token's timestamps say."""
RETRY_AFTER_CAP = 600.0
"""Seconds. A longer Retry-After is shortened to this."""
LAST_ATTEMPT_SECONDS = 10.0
"""Before expiry. A Retry-After never reaches into this time, so that a last attempt can still end in time."""
NOT_READY_CAP = 10.0
"""Seconds between attempts while a failure is expected to pass by itself."""
MAX_DELAY_SECONDS = 86400.0
"""Between attempts after failures, whatever the configuration says."""
MARGIN_SHARE = 0.75
"""Of a lifetime: a margin beyond it leaves too little to live on."""


class State(StrEnum):
    """How an identity stands; a later one is worse."""

    FRESH = "fresh"
    STALE = "stale"
    EXPIRED = "expired"
    MISSING = "missing"


SEVERITY = {State.FRESH: 0, State.STALE: 1, State.EXPIRED: 2, State.MISSING: 3}


def worst(states: list[State]) -> State:
    """The worst of them; fresh where there are none."""
    return max(states, key=SEVERITY.__getitem__, default=State.FRESH)


@dataclass(frozen=True, slots=True)
class Span:
    """The life of one token or credential, UTC."""

    issued_at: datetime
    expires_at: datetime

    @property
    def lifetime(self) -> float:
        """Seconds."""
        return (self.expires_at - self.issued_at).total_seconds()

    def remaining(self, now: datetime) -> float:
        """Seconds; negative once expired."""
        return (self.expires_at - now).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How early one identity's token, or its credential, is replaced."""

    at: float = 0.8
    jitter: float = 0.05
    max_age: float = 86400.0
    """Seconds."""
    max_use: float | None = None
    """Seconds after its issue at which it is withdrawn, if nothing has replaced it; None: it is used until it expires."""
    margin: float = 0.0
    """Seconds of life that the most demanding enabled consumer wants left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Seconds between attempts after failures."""

    initial: float = 1.0
    max: float = 60.0


def granted_margin(span: Span, policy: Policy) -> float:
    """Seconds: the margin, or a quarter of the lifetime where a short grant would be eaten by it."""
    return policy.margin if policy.margin <= MARGIN_SHARE * span.lifetime else (1 - MARGIN_SHARE) * span.lifetime


def refresh_due(span: Span, policy: Policy, fraction: float = 0.0) -> datetime:
    """min(iat + L·(at − U(0, jitter)), exp − margin), and never beyond the greatest age.

    L is the lifetime, or `max_use` where that is shorter: what is withdrawn at that age is replaced before it.
    `fraction` in [0, 1) is the die that was cast for the jitter; it only ever makes a refresh earlier.
    """
    share = max(policy.at - policy.jitter * fraction, policy.at / 2)
    lifetime = span.lifetime if policy.max_use is None else min(span.lifetime, policy.max_use)
    by_share = span.issued_at + timedelta(seconds=lifetime * share)
    by_margin = span.expires_at - timedelta(seconds=granted_margin(span, policy))
    by_age = span.issued_at + timedelta(seconds=min(policy.max_age, max(0.0, span.lifetime)))
    return min(by_share, by_margin, by_age)


def use_ends(span: Span, policy: Policy) -> datetime:
    """Return the time of withdrawal: expiry, or `max_use` if that is sooner."""
    if policy.max_use is None:
        return span.expires_at
    return span.issued_at + timedelta(seconds=min(policy.max_use, span.lifetime))


def soonest_due(span: Span, policy: Policy, now: datetime) -> datetime:
    """Return the time before which a new token or credential is not due again, however old it was on arrival.

    Otherwise an issuer whose clock is behind, or that serves a cached token, would be asked without a pause. For
    what is new when it comes this is never later than `refresh_due`.
    """
    share = min(1 - MARGIN_SHARE, max(policy.at - policy.jitter, policy.at / 2))
    return now + timedelta(seconds=max(MIN_REFRESH_INTERVAL, min(UNCHANGED_FLOOR, policy.max_age, share * span.remaining(now))))


def unchanged_due(span: Span, policy: Policy, now: datetime, fraction: float = 0.0) -> datetime:
    """Return the next time after a refresh with the same expiry: half of what remains, not sooner than the floor.

    Nor later than was due anyway, where the refresh was asked for ahead of its time.
    """
    half = now + timedelta(seconds=span.remaining(now) / 2)
    due = refresh_due(span, policy, fraction)
    return max(now + timedelta(seconds=UNCHANGED_FLOOR), min(half, due) if due > now else half)


def backoff_seconds(failures: int, *, first: float, longest: float) -> float:
    """Return the pause after so many failures in a row: `first` after one, doubled by each other, at most `longest`."""
    return min(longest, first * 2.0 ** min(failures - 1, 32))


def retry_delay(
    reaction: Reaction, failures: int, backoff: Backoff, random: Random, *, remaining: float | None = None, retry_after: float | None = None
) -> float:
    """Return the seconds until the next attempt after so many failures in a row (at least one).

    Exponential with half of it jitter, from `initial` on; sooner as expiry nears (at the latest after a quarter of
    what `remaining` is left); what must be changed by a person is tried at the slow end from the start. A Retry-After is
    obeyed as long as what is held outlives it.
    """
    ceiling = min(NOT_READY_CAP if reaction is Reaction.NOT_READY else MAX_DELAY_SECONDS, backoff.max)
    delay = ceiling if reaction.needs_a_change else backoff_seconds(failures + 1, first=backoff.initial, longest=ceiling)
    if remaining is not None and remaining > 0:
        delay = min(delay, remaining / 4)
    delay *= 0.5 + 0.5 * random.random()
    asked = min(retry_after or 0.0, RETRY_AFTER_CAP)
    if remaining is not None and remaining > 0:
        asked = min(asked, remaining - LAST_ATTEMPT_SECONDS)
    return max(delay, min(backoff.initial, ceiling), asked)


def stale_after(span: Span, policy: Policy) -> datetime:
    """60 s or 2 % of the lifetime past due, whichever is more."""
    return refresh_due(span, policy) + timedelta(seconds=max(60.0, 0.02 * span.lifetime))


def state_of(span: Span | None, policy: Policy, now: datetime) -> State:
    """Return the state of a token or credential by itself."""
    if span is None:
        return State.MISSING
    if now >= span.expires_at:
        return State.EXPIRED
    return State.STALE if now > stale_after(span, policy) else State.FRESH
