"""What the exchanges of several clouds have in common: errors of a token service, session names, plausible ends, files for SDKs."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from agent.model import Paths, Secret

MAX_LIFETIME = timedelta(days=3650)
"""A credential with a longer lifetime is invalid: token services grant a day at most."""
MAX_SESSION_NAME_CHARACTERS = 64
SIGN_IN_PAGE = "check provider.endpoint and provider.proxy, and whether a sign-in page intercepts requests"
"""Remedy for an answer that the token service cannot have written."""


class ServiceError(Exception):
    """A token service returned an error in the place of a credential. Only its provider sees this exception."""

    def __init__(self, *, code: str, text: str, status: int, retry_after: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.text = text
        self.status = status
        self.retry_after = retry_after

    @property
    def transient(self) -> bool:
        """Whether the HTTP status says that a retry may succeed."""
        return self.status in {408, 429} or self.status >= 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """The claims of the sent token that a remedy may repeat. Nothing secret."""

    issuer: str = ""
    subject: str = ""
    audiences: Sequence[str] = ()


class TokenFileCredential:
    """The files with which an SDK does the exchange itself. Holds no secret and has no lifetime of its own."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None

    def __init__(self, render: Callable[[Paths], Mapping[str, Secret]]) -> None:
        self._render = render

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        return self._render(paths)

    def document(self) -> Mapping[str, Any]:
        return {}


def implausible_end(expires_at: datetime, now: datetime) -> str:
    """Return why a granted credential cannot end at this time; empty if it can."""
    if expires_at <= now:
        return "has ended already"
    return "" if expires_at < now + MAX_LIFETIME else "never ends"


def session_name(identity: str, role: str, *, forbidden: str) -> str:
    """Return a name that is the same at every start, so that the cloud's audit log shows one actor; at most 64 characters.

    `forbidden`: pattern of a character that the cloud does not accept in a session name.
    """
    tail = hashlib.sha256(f"{identity}\0{role}".encode()).hexdigest()[:8]
    longest = MAX_SESSION_NAME_CHARACTERS - len(f"wi--{tail}")
    return f"wi-{re.sub(forbidden, '-', identity)[:longest]}-{tail}"
