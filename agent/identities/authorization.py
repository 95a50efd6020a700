"""The metadata endpoint's authorization, generated unless the configuration has it: once, and stored beside the files.

SDKs read it once and keep it, so it stays the same while the identity is configured, also if its principal or its sinks
change.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence

import structlog

from agent.errors import RefreshError
from agent.model import KeepsSecrets, Secret, Sink

log = structlog.get_logger()

FILE = "authorization"
BYTES = 32
SINK_TIMEOUT_SECONDS = 10.0
"""The files sink's own is a little less."""


class Authorizations:
    """Those that were made up here or by an earlier process, by identity."""

    def __init__(self) -> None:
        self._made_up: dict[str, Secret] = {}

    def known(self, identity: str) -> Secret | None:
        """The identity's; None where none has been made up yet."""
        return self._made_up.get(identity)

    def forget(self, identity: str) -> None:
        """Forget it: the identity is removed from the configuration, and the next of this name gets another."""
        self._made_up.pop(identity, None)

    async def share(self, identity: str, sinks: Sequence[Sink]) -> Secret:
        """The identity's own, else one that an earlier process left in a sink, else a new one; in all of them for the workload to read."""
        found = [await recall(identity, sink) for sink in sinks]
        kept = self._made_up.get(identity) or next((text for text in found if text), None)
        text = self._made_up[identity] = kept or _made_up(identity)
        for sink in sinks:
            if not isinstance(sink, KeepsSecrets):
                continue
            try:
                async with asyncio.timeout(SINK_TIMEOUT_SECONDS):
                    await sink.retain(FILE, text)
            except (RefreshError, TimeoutError) as error:  # the courier writes it with the first grant
                reason, remedy = (
                    (error.message, error.remedy) if isinstance(error, RefreshError) else ("the disk does not answer", "check the volume")
                )
                log.warning("authorization.not_written", identity=identity, sink=sink.name, error=reason, remedy=remedy)
        return text


async def recall(identity: str, sink: Sink) -> Secret | None:
    """What an earlier process left in a sink, if anything; from here on the sink knows the file for its own."""
    if not isinstance(sink, KeepsSecrets):
        return None
    try:
        async with asyncio.timeout(SINK_TIMEOUT_SECONDS):
            found = await sink.recall(FILE)
    except (RefreshError, TimeoutError) as error:
        log.warning("authorization.not_recalled", identity=identity, sink=sink.name, reason=str(error) or "no answer")
        return None
    return None if found and _is_anothers(found, identity) else found


def is_of(text: bytes, identity: str) -> bool:
    """Return whether the agent made it up for this identity; False where it does not say for which."""
    chance, _, mark = text.decode("ascii", "replace").partition(".")
    return bool(mark) and mark == _mark(chance, identity)


def _made_up(identity: str) -> Secret:
    """Embed a digest of the identity's name.

    At the next start the directory may be another identity's, which must refuse the old clients.
    """
    chance = secrets.token_urlsafe(BYTES)
    return Secret(f"{chance}.{_mark(chance, identity)}")


def _is_anothers(text: Secret, identity: str) -> bool:
    """Not where it does not say: earlier agents made such."""
    chance, _, mark = text.reveal().partition(".")
    return bool(mark) and mark != _mark(chance, identity)


def _mark(chance: str, identity: str) -> str:
    return hashlib.sha256(f"{len(chance)}:{chance}{identity}".encode()).hexdigest()[:12]
