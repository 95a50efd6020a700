"""Session tokens of instance metadata services: what a client shows that it could send a PUT, which forged requests mostly cannot.

A token says when it ends and is signed, so that none has to be remembered, however many are asked for. The key is the
process's: after a restart a token is unknown, as after a reboot, and SDKs ask for another.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from datetime import UTC, datetime, timedelta

from agent.serving.memo import BoundedCache

EPOCH = datetime.fromtimestamp(0, UTC)
MOST, LENGTH = 16, 56
"""Tokens whose signature was found good that are remembered at a time, and characters of each."""


class Sessions:
    """For one dialect."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def open(self, name: str, seconds: int, now: datetime) -> str:
        """A token for this identity's paths: 56 characters, as EC2's."""
        stamp = (int(now.timestamp() * 1000) + seconds * 1000).to_bytes(8, "big") + secrets.token_bytes(2)
        return base64.urlsafe_b64encode(stamp + self._sign(stamp, name)).decode()

    def end(self, token: str, name: str) -> datetime | None:
        """When it ends or has ended; None where it was not opened here, for this identity."""
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
    """Tokens that clients have shown and that were good, so that a signature is looked at once: that costs as much as half a request.

    What was opened and never shown is not here, nor what was not good: nobody fills this who could not have asked instead.
    The look-up is by a hash whose key is the process's, so that its time says nothing of how near a guess came.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._known: BoundedCache[tuple[str, datetime]] = BoundedCache(MOST, LENGTH)
        """Identity and end, by token."""

    def knows(self, token: str, name: str, now: datetime) -> bool:
        """Whether it was opened here, for this identity, and has not ended."""
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
