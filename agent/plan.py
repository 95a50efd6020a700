"""When a keeper acts next, and for what. State and arithmetic, no waiting: the keeper does that."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from agent.errors import RefreshError
from agent.model import Grant
from agent.record import credential_span, token_span
from agent.schedule import Backoff, Policy, Span, granted_margin, refresh_due, retry_delay, unchanged_due


@dataclass(slots=True)
class _Part:
    """The token, or the credential: each has its own clock."""

    policy: Policy
    span: Span | None = None
    dice: float = 0.0
    not_before: datetime | None = None
    """After a refresh that brought nothing newer."""

    def observe(self, span: Span | None, now: datetime, random: Random) -> None:
        if span is None:
            self.span = self.not_before = None
            return
        if self.span and span.expires_at == self.span.expires_at:
            return
        # a giver whose clock is ahead of ours must not look like our clock having run backwards
        self.span, self.dice, self.not_before = Span(min(span.issued_at, now), span.expires_at), random.random(), None

    def due(self) -> datetime | None:
        if self.span is None:
            return None
        return self.not_before or refresh_due(self.span, self.policy, self.dice)


class Plan:
    """For one key of the store."""

    def __init__(self, token: Policy | None, credential: Policy, random: Random) -> None:
        """`token` is None for a variant: the identity's own plan sees to the token."""
        self._token = _Part(token or Policy())
        self._minds_token = token is not None
        self._credential = _Part(credential)
        self._random = random
        self._retry_at: datetime | None = None
        self._received_at: datetime | None = None
        self._generation = 0

    def observe(self, grant: Grant | None, now: datetime) -> None:
        """Takes note of what is held, whoever got it."""
        if grant is None or grant.generation == self._generation:
            return
        self._generation, self._received_at = grant.generation, now
        self._token.observe(token_span(grant) if self._minds_token else None, now, self._random)
        self._credential.observe(credential_span(grant), now, self._random)

    def due(self, now: datetime) -> datetime:
        """When to act: at once where nothing is held."""
        if self._retry_at:
            return self._retry_at
        dues = [due for due in (self._token.due(), self._credential.due()) if due]
        return min(dues, default=now)

    @property
    def began(self) -> datetime | None:
        """A clock that has run back past this makes everything due; None while a retry is pending."""
        spans = [part.span.issued_at for part in (self._token, self._credential) if part.span]
        return None if self._retry_at or not spans else min(spans)

    def token_due(self, now: datetime) -> bool:
        """Whether the token's time has come, or nothing is held."""
        return self._is_due(self._token, now) or not self._generation

    def credential_due(self, now: datetime) -> bool:
        """Whether the credential's time has come, or nothing is held."""
        return self._is_due(self._credential, now) or not self._generation

    def succeeded(self, now: datetime, *, token_unchanged: bool, credential_unchanged: bool) -> None:
        """A refresh has ended well; what it brought was observed before."""
        self._retry_at = None
        for part, unchanged in ((self._token, token_unchanged), (self._credential, credential_unchanged)):
            if unchanged and part.span:
                part.span = Span(min(part.span.issued_at, now), part.span.expires_at)
                part.not_before = unchanged_due(part.span, now)

    def settled(self) -> None:
        """Somebody else saw to what was due."""
        self._retry_at = None

    def failed(self, error: RefreshError, failures: int, now: datetime, backoff: Backoff) -> None:
        """A refresh has failed for so many times in a row."""
        left = [part.span.remaining(now) for part in (self._token, self._credential) if part.span]
        delay = retry_delay(
            error.reaction,
            failures,
            backoff,
            self._random,
            remaining=min(left, default=None),
            retry_after=getattr(error, "retry_after", None),
        )
        self._retry_at = now + timedelta(seconds=delay)

    def unused_since(self, used_at: datetime | None) -> bool:
        """Whether nobody asked since what is held was received."""
        return bool(self._received_at and (used_at is None or used_at <= self._received_at))

    def _is_due(self, part: _Part, now: datetime) -> bool:
        due = part.due()
        return due is not None and (due <= now or bool(part.span and now < part.span.issued_at))


def note_on(grant: Grant, token: Policy, credential: Policy) -> str:
    """What an operator should know of a grant too short for its consumers; empty where all is well."""
    for what, span, policy in (("token", token_span(grant), token), ("credential", credential_span(grant), credential)):
        if span and policy.margin and (granted := granted_margin(span, policy)) < policy.margin:
            return (
                f"the {what} was granted for {span.lifetime:.0f} s: its consumers want {policy.margin:.0f} s left, they get "
                f"{granted:.0f} s and ask more often than they need to; let the cloud grant a longer session"
            )
    return ""
