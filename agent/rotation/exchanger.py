"""Source and provider of an identity, as its keeper asks them: one token for it and all its variants, and nothing dead is taken."""

import asyncio
from datetime import datetime

from agent.clock import Clock
from agent.errors import Defect, Rejected
from agent.model import Credential, IdentityToken, Prepares, Provider, Source
from agent.record import Profile

LEAST_LEFT = 60.0
"""Seconds: a token with less life left is not used for an exchange."""


class Exchanger:
    """Of one identity. Raises NotReady, Unavailable, Rejected or Defect."""

    def __init__(self, profile: Profile, source: Source, provider: Provider, clock: Clock) -> None:
        self.token: IdentityToken | None = None
        """The one at hand."""
        self._profile = profile
        self._source = source
        self._provider = provider
        self._clock = clock
        self._fetching = asyncio.Lock()
        self._refused: IdentityToken | None = None
        """A token that an exchange was refused with: perhaps another one is not."""

    @property
    def host(self) -> str:
        """The host whose rate limit an attempt counts against; empty if nothing is sent."""
        return self._provider.host or self._source.host

    def used_up(self, now: datetime) -> bool:
        """Return whether an exchange needs a new token."""
        token = self.token
        return token is None or token is self._refused or (token.expires_at - now).total_seconds() < LEAST_LEFT

    async def fetch(self) -> IdentityToken | None:
        """A new token, for the identity and for its variants: the identity's own grant gets it too."""
        before = self.token
        async with self._fetching:
            if self.token is not before:
                return self.token  # fetched while this one waited
            if isinstance(self._provider, Prepares):
                await self._provider.prepare()
            token = await self._source.fetch(self._provider.audiences)
            if token and token.expires_at <= self._clock.now():
                raise self._dead("token", self._profile.source)
            self.token = token
            return token

    async def exchange(self, token: IdentityToken | None, variant: str) -> Credential:
        """A credential that works at this moment, and of which is known until when."""
        try:
            credential = await self._provider.exchange(token, variant)
        except Rejected:
            self._refused = token
            raise
        if credential.expires_at and credential.expires_at <= self._clock.now():
            raise self._dead("credential", self._profile.provider)
        if (variant or token is None) and not (credential.issued_at and credential.expires_at):
            raise Defect(  # neither it nor a token says when to ask again, so it would be held for ever
                f"{self._profile.name}: the credential that {self._profile.provider} gave has no expiry, nor is there a token with one",
                remedy="this is a bug in the agent: please report it with the log",
            )
        return credential

    def _dead(self, what: str, giver: str) -> Rejected:
        """It must not replace one that works. The message names no time, so that the same failure is logged once."""
        return Rejected(
            f"{self._profile.name}: the {what} that {giver} gave had expired when it came",
            remedy="compare the clocks: this machine's, and the giver's",
        )
