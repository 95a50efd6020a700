"""The issuer's keys in memory: one signs, all are published. `keyring.py` and `read_only.py` each fill them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog

from agent.clock import Clock
from agent.errors import NotReady, Rejected
from agent.issuer import rotation
from agent.issuer.keys import SigningKey
from agent.issuer.rotation import Rhythm, Term

log = structlog.get_logger()

Held = tuple[Term, SigningKey]


@dataclass(kw_only=True)
class HeldKeys:
    """The keys of one issuer, in the order in which they sign. No I/O."""

    rhythm: Rhythm
    clock: Clock
    remedy: str
    """Of the message that there is no key yet."""
    held: tuple[Held, ...] = ()
    announced: SigningKey | None = None
    """A key that is published already and that the index does not name yet."""
    _signer: str = ""

    @property
    def terms(self) -> Sequence[Term]:
        """Of the keys that may sign."""
        return [term for term, _ in self.held]

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a JWT of these claims, signed by the key whose turn it is.

        Raises NotReady before there is a key, and Rejected if the token would outlive its key's publication.
        """
        if not self.held:
            raise NotReady("the issuer has no key yet", remedy=self.remedy)
        now = self.clock.now()
        if claims["exp"] > now.timestamp() + self.rhythm.longest_lifetime:
            raise Rejected(
                "the token would live longer than issuer.lifetime.max", remedy="shorten source.lifetime or raise issuer.lifetime.max"
            )
        term, key = self.held[rotation.signing(self.terms, now)]
        if claims["exp"] > now.timestamp() + term.longest_lifetime:
            raise Rejected(
                f"the token would live longer than its key is published: the key was made for tokens of {term.longest_lifetime:.0f} s",
                remedy="shorten source.lifetime, or have the keys made with a longer issuer.lifetime.max",
            )
        return key.sign(claims)

    def public_keys(self) -> dict[str, Any]:
        """Return the key set to publish (RFC 7517): the next key before it signs, the last for as long as its tokens live."""
        shown = [key for _, key in self.held]
        if self.announced and self.announced not in shown:
            shown.append(self.announced)
        return {"keys": [dict(key.jwk) for key in shown]}

    def algorithms(self) -> list[str]:
        """Of all published keys; more than one only after `issuer.algorithm` was changed."""
        return sorted({str(key["alg"]) for key in self.public_keys()["keys"]})

    def states(self) -> list[tuple[str, str, datetime]]:
        """(kid, state, since) of each key; the states are `published`, `signing` and `retired`."""
        return rotation.phases(self.terms, self.clock.now())

    @property
    def max_age(self) -> int:
        """Seconds for which verifiers may cache the key set: a copy must expire before a key signs that it lacks."""
        return int(min(self.rhythm.cache, self.rhythm.publish_before))

    @property
    def complete_until(self) -> datetime:
        """The time until which a copy of the key set, taken now, holds every key that signs."""
        soonest = self.clock.now() + timedelta(seconds=self.rhythm.publish_before)
        return max(rotation.next_turn(self.terms, self.rhythm), soonest)

    def log_signer(self) -> None:
        """Log the key that signs, once for each."""
        signer = self.terms[rotation.signing(self.terms, self.clock.now())] if self.held else None
        if signer and signer.kid != self._signer:
            self._signer = signer.kid
            log.info("key.signing", kid=signer.kid, since=signer.signs_from.isoformat())
