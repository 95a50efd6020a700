"""`grant.json`: what a generation of files says of itself, so that it can be read back and adopted after a restart.

It names whose files these are, when they end and what they must hash to. It holds no secret.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime

import msgspec

from agent.model import Delivery, Grant

NAME = "grant.json"
"""Its usual name."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """The life of a token or credential, RFC 3339, UTC; null where there is none or it has no clock of its own."""

    iat: datetime | None
    exp: datetime | None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `grant.json`."""

    identity: str
    digest: str
    """Of the settings that shaped the files."""
    generation: int
    """As counted by the process that wrote it."""
    token: Times
    credential: Times
    files: dict[str, str]
    """sha256 in hex of each other file, by its name on disk."""
    made_directory: bool = msgspec.field(default=False, name="madeDirectory")
    """Whether the agent made the directory, and so may remove it."""

    def encode(self) -> bytes:
        """Indented, for people."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def delivery(self, generation: int) -> Delivery:
        """As the courier wants to know it."""
        return Delivery(
            generation=generation,
            token_issued_at=self.token.iat,
            token_expires_at=self.token.exp,
            credential_issued_at=self.credential.iat,
            credential_expires_at=self.credential.exp,
        )


def describe(grant: Grant, digest: str, files: Mapping[str, bytes]) -> Manifest:
    """The manifest of these files, by their names on disk."""
    token, credential = grant.token, grant.credential
    return Manifest(
        identity=grant.key.identity,
        digest=digest,
        generation=grant.generation,
        token=Times(iat=token.issued_at if token else None, exp=token.expires_at if token else None),
        credential=Times(iat=credential.issued_at, exp=credential.expires_at),
        files={name: summary(content) for name, content in files.items()},
    )


def parse(content: bytes) -> Manifest | None:
    """Return None if it is not a manifest, or if its times name no zone and so cannot be compared."""
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    moments = (manifest.token.iat, manifest.token.exp, manifest.credential.iat, manifest.credential.exp)
    return manifest if all(moment is None or moment.tzinfo for moment in moments) else None


def summary(content: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(content).hexdigest()
