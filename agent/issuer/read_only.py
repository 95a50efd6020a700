"""The keys of an issuer that somebody else makes: read where they lie, never written, taken over as they change.

For several agents that sign for one issuer, from one Kubernetes Secret that each mounts: a directory as the agent itself
makes it, index and PEM files. Which key signs when stands in the index, so all of them agree; whoever fills the
Secret publishes, turns over and drops.
"""

import asyncio
import os
import stat
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Never

import structlog

from agent.clock import Clock
from agent.errors import ConfigError, NotReady, Rejected
from agent.issuer import rotation
from agent.issuer.keyring import GLANCES, Held, Keyring
from agent.issuer.keystore import KeyStore
from agent.issuer.rotation import CACHE
from agent.offload import in_thread

log = structlog.get_logger()

LOOK_EVERY = 10.0
"""Seconds between looks at whether other keys lie there. The kubelet itself takes a minute or more to bring a changed Secret."""
PATIENCE = 10.0
"""Seconds that the disk may take for one."""
REMEDY = "fill it, or the Secret behind it, from a whole state directory, index.json and all keys that it names"
SILENCE, DISK = "the disk does not answer", "look at the volume"
"""What is said while it does not, and what to do."""

Look = tuple[int, int, int, int]


class ReadOnlyKeyring(Keyring):
    """The keys at hand stay until others can be read whole."""

    def __init__(
        self, state: Path, *, every: float, publish_before: float, longest_lifetime: float, clock: Clock, cache: float = CACHE
    ) -> None:
        """All lengths of time in seconds; the first two are those of whoever makes the keys."""
        super().__init__(state, "RS256", every, publish_before, longest_lifetime, clock, cache)  # each key says its own algorithm
        self._state = state
        self._store = KeyStore(state, vet=vet, remedy=REMEDY)
        self._seen: Look | None = None
        """How the index looked that the keys at hand are from."""
        self._reading = threading.Lock()
        """Held by the thread that reads: one that a disk holds up is waited for, not joined by others in the same descriptor."""

    async def open(self, *, shared: bool = False) -> None:  # noqa: ARG002  # it is shared in any case
        """Reads the keys; where none lie there yet, they are waited for. Raises ConfigError where they are not whole."""
        await self._take_over()
        self._tell_signer()

    async def run(self) -> Never:
        """Takes over what is changed, until cancelled; what cannot be used is said once, and ends nothing."""
        said = ""
        while True:
            await self._clock.sleep(LOOK_EVERY)
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._take_over()
                said = ""
            except (ConfigError, TimeoutError) as error:
                reason, remedy = (error.message, error.remedy) if isinstance(error, ConfigError) else (SILENCE, DISK)
                if reason != said:
                    log.warning("key.not_taken_over", reason=reason, remedy=remedy, keys=len(self._held))
                said = reason
            self._tell_signer()

    def sign(self, claims: Mapping[str, Any]) -> str:
        if not self._held:
            raise NotReady("the issuer has no key yet", remedy=f"put index.json, and the keys that it names, into {self._state}")
        term = self._terms[rotation.signing(self._terms, self._clock.now())]
        if claims["exp"] > (self._clock.now() + timedelta(seconds=term.longest_lifetime)).timestamp():
            raise Rejected(
                f"the token would live longer than its key is published: that was made for {term.longest_lifetime:.0f} s",
                remedy="shorten source.lifetime, or have the keys made with a longer issuer.lifetime.max",
            )
        return super().sign(claims)

    async def _take_over(self) -> None:
        """Reads the keys if others lie there than those at hand. Raises ConfigError where they cannot be used."""
        found = await in_thread("issuer keys", self._read)
        if found is None:
            return
        self._seen, held = found
        self._take(held)
        if held:
            log.info("key.taken_over", kids=[term.kid for term in self._terms])

    def _read(self) -> tuple[Look | None, tuple[Held, ...]] | None:
        """How the index looks, and the keys; None where it looks as it did. For a thread, and never for two at a time."""
        if not self._reading.acquire(blocking=False):
            raise ConfigError(SILENCE, remedy=DISK)
        failures = 0
        try:
            while (seen := self._look()) != self._seen or not self._held:
                try:
                    return seen, self._whole()
                except ConfigError:  # whoever fills it may have been at it just now
                    failures += 1
                    if failures == GLANCES:
                        raise
            return None
        finally:
            self._reading.release()

    def _whole(self) -> tuple[Held, ...]:
        held = tuple(self._store.glance())
        if self._held and not held:
            raise ConfigError(f"issuer.state: {self._state} holds no key any more", remedy=REMEDY)
        return held

    def _look(self) -> Look | None:
        try:
            seen = (self._state / "index.json").stat()
        except OSError:
            return None
        return seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_size


def vet(found: os.stat_result, name: str) -> None:
    """A key that a stranger can put there signs for him. Raises ConfigError.

    That others can read it is no reason: the kubelet's own default is 0644, in a volume that only the agent mounts.
    """
    if found.st_uid not in {0, os.geteuid()} or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"issuer.state: {name} can be changed by others: it belongs to uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}",
            remedy="let root or the agent own the directory and what is in it, writable for nobody else",
        )
