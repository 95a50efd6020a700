"""Plan of one key: the next time that a keeper acts, and for what. It never waits: the keeper does."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from agent.errors import RefreshError
from agent.model import Grant
from agent.record import credential_span, token_span
from agent.schedule import Backoff, Policy, Span, granted_margin, refresh_due, retry_delay, soonest_due, unchanged_due, use_ends

MIN_IDLE_SECONDS = 300.0
"""After the last request for a run-time variant without a credential, until the keeper drops it."""


@dataclass(slots=True)
class _Part:
    """The token, or the credential: each has its own clock."""

    policy: Policy
    span: Span | None = None
    dice: float = 0.0
    not_before: datetime | None = None
    """After a refresh that brought nothing newer, or something as good as due."""
    owed: bool = False
    """An attempt at it has failed, and nothing newer has come since."""

    def observe(self, span: Span | None, now: datetime, dice: float, *, brought: bool) -> None:
        if span is None:
            self.span = self.not_before = None
            return
        if self.span and span.expires_at == self.span.expires_at:
            return
        # if the issuer's clock is ahead, it must not look as if ours had run backwards
        self.span, self.dice, self.not_before, self.owed = Span(min(span.issued_at, now), span.expires_at), dice, None, False
        if brought and refresh_due(self.span, self.policy, dice) < (soonest := soonest_due(self.span, self.policy, now)):
            self.not_before = soonest

    def due(self) -> datetime | None:
        if self.span is None:
            return None
        return self.not_before or refresh_due(self.span, self.policy, self.dice)

    def is_due(self, now: datetime) -> bool:
        due = self.due()
        return self.owed or (due is not None and (due <= now or bool(self.span and now < self.span.issued_at)))

    def refreshed(self, now: datetime, *, unchanged: bool) -> None:
        self.owed = False
        if unchanged and self.span:
            self.span = Span(min(self.span.issued_at, now), self.span.expires_at)
            self.not_before = unchanged_due(self.span, self.policy, now, self.dice)


class Plan:
    """For one key of the store."""

    def __init__(self, token: Policy | None, credential: Policy, random: Random) -> None:
        """`token` is None for a variant: the identity's own plan sees to the token."""
        self._token = _Part(token or Policy())
        self._minds_token = token is not None
        self._credential = _Part(credential)
        self._random = random
        self._failed_at: datetime | None = None
        self._retry_at: datetime | None = None
        self._generation = 0

    def observe(self, grant: Grant | None, now: datetime, *, token_brought: bool = False, credential_brought: bool = False) -> None:
        """Take note of the current grant; `…_brought`: this refresh has just fetched or exchanged it."""
        if grant is None or grant.generation == self._generation:
            return
        self._generation = grant.generation
        self._token.observe(token_span(grant) if self._minds_token else None, now, self._random.random(), brought=token_brought)
        self._credential.observe(credential_span(grant), now, self._random.random(), brought=credential_brought)

    def due(self, now: datetime) -> datetime:
        """Return the next time to act: at once without a grant, after the maximum age if the grant names no time."""
        if self._retry_at:
            return self._retry_at
        dues = [due for due in (self._token.due(), self._credential.due()) if due]
        return min(dues, default=now + timedelta(seconds=self._credential.policy.max_age) if self._generation else now)

    @property
    def began(self) -> datetime | None:
        """A clock that has run back past this makes something due; None where nothing is held nor was tried."""
        if self._retry_at:
            return self._failed_at
        return max((part.span.issued_at for part in (self._token, self._credential) if part.span), default=None)

    def backing_off(self, now: datetime) -> bool:
        """Whether an attempt has failed and it is too early for the next."""
        return bool(self._retry_at and self._failed_at and self._failed_at <= now < self._retry_at)

    def token_due(self, now: datetime) -> bool:
        """Whether the token's time has come, or an attempt at it has to be repeated."""
        return self._token.is_due(now)

    def credential_due(self, now: datetime) -> bool:
        """Whether the credential's time has come, or an attempt at it has to be repeated."""
        return self._credential.is_due(now)

    def succeeded(self, now: datetime, *, token_unchanged: bool, credential_unchanged: bool) -> None:
        """A refresh has ended well; what it brought was observed before."""
        self._failed_at = self._retry_at = None
        self._token.refreshed(now, unchanged=token_unchanged)
        self._credential.refreshed(now, unchanged=credential_unchanged)

    def settled(self) -> None:
        """Another loop has refreshed what was due."""
        self._failed_at = self._retry_at = None

    def failed(self, error: RefreshError, failures: int, now: datetime, backoff: Backoff, *, token: bool, credential: bool) -> None:
        """A refresh has failed for so many times in a row; `token` and `credential` are what it was to bring and did not."""
        self._token.owed |= token and self._minds_token
        self._credential.owed |= credential
        ends = [use_ends(part.span, part.policy) for part in (self._token, self._credential) if part.span]
        left = [(end - now).total_seconds() for end in ends if end > now]  # an expired part neither shortens the delay nor hides the other
        delay = retry_delay(
            error.reaction,
            failures,
            backoff,
            self._random,
            remaining=min(left, default=None),
            retry_after=error.retry_after,
        )
        self._failed_at, self._retry_at = now, now + timedelta(seconds=delay)

    def idle(self, used_at: datetime | None, now: datetime) -> bool:
        """Return whether no client has asked for one lifetime."""
        span = self._credential.span
        return used_at is None or (now - used_at).total_seconds() >= (span.lifetime if span else MIN_IDLE_SECONDS)


def note_on(grant: Grant, token: Policy, credential: Policy) -> str:
    """What an operator should know of a grant too short for its consumers; empty where all is well."""
    for what, span, policy in (("token", token_span(grant), token), ("credential", credential_span(grant), credential)):
        if span and policy.margin and (granted := granted_margin(span, policy)) < policy.margin:
            return (
                f"the {what} was granted for {span.lifetime:.0f} s: its consumers want {policy.margin:.0f} s left, they get "
                f"{granted:.0f} s and ask more often than they need to; let the cloud grant a longer session"
            )
    return grant.token.note if grant.token else ""
