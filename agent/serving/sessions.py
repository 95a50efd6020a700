"""Session tokens of instance metadata services: what a client shows that it could send a PUT, which forged requests mostly cannot.

A token says when it ends and is signed, so that none has to be remembered, however many are asked for. The key is the
process's: after a restart a token is unknown, as after a reboot, and SDKs ask for another.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from datetime import datetime


class Sessions:
    """For one dialect."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def open(self, name: str, seconds: int, now: datetime) -> str:
        """A token for this identity's paths: 56 characters, as EC2's."""
        stamp = (int(now.timestamp() * 1000) + seconds * 1000).to_bytes(8, "big") + secrets.token_bytes(2)
        return base64.urlsafe_b64encode(stamp + self._sign(stamp, name)).decode()

    def knows(self, token: str, name: str, now: datetime) -> bool:
        """Whether it was opened here, for this identity, and has not ended."""
        try:
            raw = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            return False
        stamp, signature = raw[:10], raw[10:]
        return hmac.compare_digest(signature, self._sign(stamp, name)) and int.from_bytes(stamp[:8], "big") > now.timestamp() * 1000

    def _sign(self, stamp: bytes, name: str) -> bytes:
        return hmac.digest(self._key, stamp + name.encode(), hashlib.sha256)
