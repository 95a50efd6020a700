"""Session tokens of instance metadata services: they prove that a client can send a PUT, which most forged requests cannot.

A token contains its expiry and is signed, so the agent stores none, however many clients request. The key belongs to the
process: after a restart a token is invalid, as after a reboot, and SDKs request another.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from datetime import UTC, datetime, timedelta

from agent.record import Profile
from agent.serving.dialect import DialectRequest
from agent.serving.memo import BoundedCache

EPOCH = datetime.fromtimestamp(0, UTC)
MAX_CACHED_TOKENS = 16
"""Verified tokens that are cached at a time."""
TOKEN_CHARACTERS = 56
MAX_LIFETIME_SECONDS = 21600
"""Of a session token, in both clouds."""


class Sessions:
    """Issues and verifies the tokens of one dialect."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def open(self, name: str, seconds: int, now: datetime) -> str:
        """Return a token for this identity's paths: 56 characters, as EC2's."""
        stamp = (int(now.timestamp() * 1000) + seconds * 1000).to_bytes(8, "big") + secrets.token_bytes(2)
        return base64.urlsafe_b64encode(stamp + self._sign(stamp, name)).decode()

    def end(self, token: str, name: str) -> datetime | None:
        """Return when the token expires or expired; None if it was not issued here for this identity."""
        try:
            raw = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            return None
        stamp, signature = raw[:10], raw[10:]
        if not hmac.compare_digest(signature, self._sign(stamp, name)):
            return None
        return EPOCH + timedelta(milliseconds=int.from_bytes(stamp[:8], "big"))

    def _sign(self, stamp: bytes, name: str) -> bytes:
        return hmac.digest(self._key, stamp + name.encode(), hashlib.sha256)


class Presented:
    """Caches verified tokens, so that a signature is computed once: that costs as much as half a request.

    Unused and invalid tokens are not cached: only a client that may request credentials can fill the cache.
    The look-up uses a hash with the process's key, so its time reveals nothing about a guess.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._known: BoundedCache[tuple[str, datetime]] = BoundedCache(MAX_CACHED_TOKENS, TOKEN_CHARACTERS)
        """Identity and expiry, by token."""

    def knows(self, token: str, name: str, now: datetime) -> bool:
        """Return whether the token was issued here for this identity and has not expired."""
        known = self._known.get(token)
        if known and known[0] == name:
            if known[1] > now:
                return True
            del self._known[token]
            return False
        end = self._sessions.end(token, name)
        if end is None or end <= now:
            return False
        self._known.keep(token, (name, end))
        return True


class SessionTokens:
    """The session tokens of one dialect as its clients request and send them."""

    def __init__(self, lifetime_header: str, token_header: str) -> None:
        self._lifetime_header = lifetime_header
        self._token_header = token_header
        self._sessions = Sessions()
        self._presented = Presented(self._sessions)

    def open_for(self, request: DialectRequest, profile: Profile, now: datetime) -> tuple[str, str] | None:
        """Return a token and its lifetime as requested; None unless the header has one number from 1 to MAX_LIFETIME_SECONDS."""
        sent = request.http.headers.getall(self._lifetime_header, [])
        if len(sent) != 1 or not (sent[0].isascii() and sent[0].isdigit() and len(sent[0]) <= 5):
            return None
        if not 1 <= int(sent[0]) <= MAX_LIFETIME_SECONDS:
            return None
        return self._sessions.open(profile.name, int(sent[0]), now), sent[0]

    def valid(self, request: DialectRequest, profile: Profile, now: datetime) -> bool | None:
        """Return whether the request's token is valid; None if it sends none."""
        sent = request.http.headers.getall(self._token_header, [])
        if not sent:
            return None
        return len(sent) == 1 and self._presented.knows(sent[0], profile.name, now)
