"""The issuer's two public documents, by which clouds verify its tokens: rendered, and exported for static hosting.

OpenID Connect Discovery 1.0, sections 3 and 4. Verifiers of tokens need no more fields than Gardener's issuer gives
(gardener-discovery-server has the same).
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.clock import Clock
from agent.errors import ConfigError
from agent.issuer.held_keys import HeldKeys
from agent.issuer.keyring import Keyring
from agent.issuer.read_only import ReadOnlyKeyring
from agent.issuer.settings import IssuerBlock
from agent.offload import in_thread

CONFIGURATION = "/.well-known/openid-configuration"
JWKS = "/jwks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The documents in the directory."""

    files: tuple[Path, ...]
    complete_until: datetime
    """Export again before then: a key that is not in these files may sign from then on."""


def keyring_of(block: IssuerBlock, clock: Clock) -> Keyring | ReadOnlyKeyring:
    """Return the keyring that this configuration describes, not open yet."""
    if block.read_only:
        return ReadOnlyKeyring(
            Path(block.state),
            every=block.rotation.every.seconds,
            publish_before=block.rotation.publish_before.seconds,
            longest_lifetime=block.lifetime.max.seconds,
            clock=clock,
        )
    return Keyring(
        Path(block.state),
        block.algorithm,
        every=block.rotation.every.seconds,
        publish_before=block.rotation.publish_before.seconds,
        longest_lifetime=block.lifetime.max.seconds,
        clock=clock,
    )


def documents(url: str, keys: HeldKeys) -> Mapping[str, Callable[[], dict[str, Any]]]:
    """Each document by its path below the issuer's URL; the keys first, because the other speaks of them."""

    def configuration() -> dict[str, Any]:
        return {
            "issuer": url,
            "jwks_uri": url.rstrip("/") + JWKS,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": keys.algorithms(),
            "claims_supported": ["iss", "sub", "aud", "exp", "nbf", "iat", "jti"],
        }

    return {JWKS: keys.public_keys, CONFIGURATION: configuration}


async def export(block: IssuerBlock, directory: Path, clock: Clock) -> Exported:
    """Write the documents below `directory`, each whole or not at all, mode 0644.

    Beside a running agent it writes what that agent publishes. Where none runs, it also makes the next key, so that
    the copy stays complete for a whole rotation. Raises ConfigError if state or directory cannot be used.
    """
    keyring = keyring_of(block, clock)
    await keyring.open(shared=True)
    try:
        if not keyring.keys.public_keys()["keys"]:
            raise ConfigError(f"issuer.state: there is no key in {block.state}", remedy="see the log: the disk may be full")
        found = documents(block.url.text, keyring.keys)
        rendered = {directory / path[1:]: json.dumps(document(), indent=1) + "\n" for path, document in found.items()}
        complete_until = keyring.keys.complete_until
    finally:
        keyring.close()
    try:
        await in_thread("issuer export", lambda: _write(rendered))
    except OSError as error:
        raise ConfigError(f"cannot write to {directory}: {error.strerror}", remedy="name a directory this user may write") from error
    return Exported(files=tuple(rendered), complete_until=complete_until)


def _write(rendered: Mapping[Path, str]) -> None:
    for path, text in rendered.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fchmod(descriptor, 0o644)
                os.fsync(descriptor)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
