"""Claims of a JWT, read without verification: the agent carries tokens, and the service that trusts one verifies it.

Read with base64 and JSON rather than PyJWT, which would load cryptography: 8 MiB that a sidecar need not have.
"""

import binascii
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent.errors import Rejected
from agent.model import IdentityToken, Secret
from agent.parsing import json_object

MAX_TOKEN_BYTES = 64 * 1024
"""No service accepts a longer token."""
COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
"""A signed JWT (RFC 7515, section 7.1): nothing in it can break a header, a line or a URL it is put into."""
MAX_TIME_SECONDS = 250_000_000_000
"""Since 1970, the year 9892: datetime cannot calculate with a later time, so the agent ignores it."""


def read_token(
    text: str, *, whose: str, now: datetime, given_expiry: datetime | None = None, companions: Mapping[str, str] | None = None
) -> IdentityToken:
    """Return the token with its own times; the effective expiry is the earliest that token or giver names.

    `whose` names the identity or place for the message; `given_expiry` is the one that the giver sent beside the token
    (Kubernetes `status.expirationTimestamp`). Raises Rejected unless this is a JWT with an expiry.
    """
    claims = _claims(text, whose)
    expiries = [_time(claims.get("exp")), _time(_warn_after(claims)), given_expiry]
    known = [expiry for expiry in expiries if expiry]
    if not known:
        raise Rejected(f"{whose}: the token has no expiry (`exp`)", remedy="only tokens that expire are carried")
    audience = claims.get("aud")
    return IdentityToken(
        value=Secret(text),
        issuer=_text(claims.get("iss")),
        subject=_text(claims.get("sub")),
        audiences=tuple(one for one in (audience if isinstance(audience, list) else [audience]) if isinstance(one, str) and one),
        issued_at=_time(claims.get("iat")) or now,
        expires_at=min(known),
        id=_text(claims.get("jti")),
        account_uid=_account_uid(claims),
        companions=companions or {},
    )


def key_id(text: str) -> str:
    """Return the `kid` of a JWT's header; empty where it has none, or is not a JWT."""
    try:
        return _text(_object(text.partition(".")[0]).get("kid"))
    except (ValueError, binascii.Error, RecursionError):
        return ""


def _claims(text: str, whose: str) -> dict[str, Any]:
    """Return the payload as an object. Raises Rejected."""
    try:
        if len(text) > MAX_TOKEN_BYTES or not COMPACT.fullmatch(text):
            raise ValueError  # noqa: TRY301  # one message for all that can be wrong
        parts = text.split(".")
        _object(parts[0])
        return _object(parts[1])
    except (ValueError, binascii.Error):
        raise Rejected(
            f"{whose}: not a JWT", remedy="expected three base64url parts separated by dots, a JSON object in each of the first two"
        ) from None


def _object(part: str) -> dict[str, Any]:
    value = json_object(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    if value is None:
        raise ValueError  # sorted by the caller, with base64's own
    return value


def _warn_after(claims: Mapping[str, Any]) -> object:
    """Kubernetes extends some tokens to a year and names here when they were due (KEP-1205, `warnafter`)."""
    private = claims.get("kubernetes.io")
    return private.get("warnafter") if isinstance(private, dict) else None


def _account_uid(claims: Mapping[str, Any]) -> str:
    """The UID of the ServiceAccount (KEP-1205, `kubernetes.io`.`serviceaccount`.`uid`); empty in any other token."""
    private = claims.get("kubernetes.io")
    account = private.get("serviceaccount") if isinstance(private, dict) else None
    return _text(account.get("uid")) if isinstance(account, dict) else ""


def _time(value: object) -> datetime | None:
    """A NumericDate (RFC 7519, section 2: seconds since 1970, UTC)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_TIME_SECONDS:
        return None
    return datetime.fromtimestamp(value, UTC)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
