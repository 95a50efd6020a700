"""Identity tokens from the agent's own issuer (`issuer:` in the configuration), for trust domains without one."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import uuid4

import msgspec

from agent.claims import key_id, read_token
from agent.errors import NotReady, Rejected
from agent.model import IdentityToken
from agent.settings import Duration, Settings
from agent.toolbox import Toolbox

RESERVED_CLAIMS = frozenset({"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "kubernetes.io"})
"""Claims that `claims` may not set: the registered ones (RFC 7519, section 4.1), and the one that marks an API server's tokens."""

BACKDATED = 10
"""Seconds by which `nbf` lies before `iat`, for verifiers whose clock is behind and that allow nothing for it; SPIRE does the same."""


class IssuerSettings(Settings, tag="issuer", tag_field="type"):
    """A token signed here, for this subject."""

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$(?!\n)")]
    lifetime: Duration = Duration(3600)
    claims: dict[str, Any] = {}


class IssuerSource:
    """Signs a token whenever it is asked to."""

    host = ""

    def __init__(self, settings: IssuerSettings, identity: str, toolbox: Toolbox) -> None:
        self._settings = settings
        self._identity = identity
        self._toolbox = toolbox

    async def fetch(self, audiences: Sequence[str]) -> IdentityToken:
        """Return a new token. `aud` is always a list, also of one: some verifiers accept no string, all accept a list."""
        issuer = self._toolbox.issuer
        if issuer is None:
            raise NotReady(f"{self._identity}: there is no issuer", remedy="add an issuer block to the configuration")
        now = self._toolbox.clock.now()
        issued_at = int(now.timestamp())
        claims = {
            **self._settings.claims,
            "iss": issuer.url,
            "sub": self._settings.subject,
            "aud": list(audiences),
            "iat": issued_at,
            "nbf": issued_at - BACKDATED,
            "exp": issued_at + self._settings.lifetime.seconds,
            "jti": str(uuid4()),
        }
        try:
            text = issuer.keys.sign(claims)
        except NotReady as error:
            raise NotReady(f"{self._identity}: {error.message}", remedy=error.remedy) from None
        except Rejected as error:
            raise Rejected(f"{self._identity}: {error.message}", remedy=error.remedy) from None
        except (TypeError, ValueError) as error:
            raise Rejected(f"{self._identity}: source.claims cannot be written as JSON: {error}", remedy="put dates in quotes") from None
        return read_token(text, whose=self._identity, now=now)

    def confirm(self, token: IdentityToken) -> None:
        """Raise Rejected if the key that signed this token is not published: verifiers refuse the token.

        If the issuer has no key at all, no key can be compared, and the token passes.
        """
        published = {key["kid"] for key in self._toolbox.issuer.keys.public_keys()["keys"]} if self._toolbox.issuer else set()
        if published and key_id(token.value.reveal()) not in published:
            raise Rejected(
                f"{self._identity}: the issuer no longer has the key that signed the token",
                remedy="if issuer.state was lost, restore it, or publish the new keys: wi-agent issuer export DIR",
            )

    async def changed(self) -> None:
        """Never return: a signed token changes by the clock only."""
        await asyncio.Event().wait()
