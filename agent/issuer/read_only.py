"""The keys of an issuer that another process makes: read in place, never written, taken over as they change.

For several agents that sign for one issuer, from one Kubernetes Secret that each mounts: a directory as the agent itself
makes it, index and PEM files. Which key signs when stands in the index, so all of them agree; the process that fills the
Secret publishes, turns over and drops.
"""

import asyncio
import os
import stat
import threading
from pathlib import Path
from types import TracebackType
from typing import Never, Self

import structlog

from agent.clock import Clock
from agent.errors import ConfigError
from agent.issuer.held_keys import Held, HeldKeys
from agent.issuer.keystore import KeyStore
from agent.issuer.rotation import CACHE, Rhythm
from agent.offload import in_thread

log = structlog.get_logger()

MAX_READS = 3
"""Of a directory that another process is changing."""
LOOK_EVERY = 10.0
"""Seconds between looks at whether other keys lie there. The kubelet itself takes a minute or more to bring a changed Secret."""
DISK_TIMEOUT_SECONDS = 10.0
"""For one look."""
REMEDY = "fill it, or the Secret behind it, from a whole state directory, index.json and all keys that it names"
SILENCE, DISK = "the disk does not answer", "check the volume"
"""Reason and remedy of the log line."""

Look = tuple[int, int, int, int]


class ReadOnlyKeyring:
    """The held keys stay in use until others can be read whole."""

    def __init__(
        self, state: Path, *, every: float, publish_before: float, longest_lifetime: float, clock: Clock, cache: float = CACHE
    ) -> None:
        """All lengths of time in seconds; the first two are those of the process that makes the keys."""
        self.keys = HeldKeys(
            rhythm=Rhythm(every=every, publish_before=publish_before, longest_lifetime=longest_lifetime, cache=cache),
            clock=clock,
            remedy=f"put index.json, and the keys that it names, into {state}",
        )
        self._clock = clock
        self._state = state
        self._store = KeyStore(state, vet=vet, remedy=REMEDY)
        self._seen: Look | None = None
        """How the index looked that the keys at hand are from."""
        self._reading = threading.Lock()
        """Held by the thread that reads: one that a disk holds up is waited for, not joined by others in the same descriptor."""

    async def open(self, *, shared: bool = False) -> None:  # noqa: ARG002  # it is shared in any case
        """Reads the keys; where none lie there yet, they are waited for. Raises ConfigError where they are not whole."""
        await self._take_over()
        self.keys.log_signer()

    async def glance(self) -> None:
        """Read the keys once, for a process that does not run. Raises ConfigError if they cannot be read or are not whole."""
        self.keys.held = tuple(await in_thread("issuer keys", self._store.glance))

    def close(self) -> None:
        """Do nothing: no descriptor stays open between two reads."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def run(self) -> Never:
        """Take over changed keys until cancelled; log unusable ones once, and keep the held keys."""
        said = ""
        while True:
            await self._clock.sleep(LOOK_EVERY)
            try:
                async with asyncio.timeout(DISK_TIMEOUT_SECONDS):
                    await self._take_over()
                said = ""
            except (ConfigError, TimeoutError) as error:
                reason, remedy = (error.message, error.remedy) if isinstance(error, ConfigError) else (SILENCE, DISK)
                if reason != said:
                    log.warning("key.not_taken_over", reason=reason, remedy=remedy, keys=len(self.keys.held))
                said = reason
            self.keys.log_signer()

    async def _take_over(self) -> None:
        """Reads the keys if others lie there than those at hand. Raises ConfigError where they cannot be used."""
        found = await in_thread("issuer keys", self._read)
        if found is None:
            return
        self._seen, held = found
        self.keys.held = held
        if held:
            log.info("key.taken_over", kids=[term.kid for term in self.keys.terms])

    def _read(self) -> tuple[Look | None, tuple[Held, ...]] | None:
        """How the index looks, and the keys; None where it looks as it did. For a thread, and never for two at a time."""
        if not self._reading.acquire(blocking=False):
            raise ConfigError(SILENCE, remedy=DISK)
        failures = 0
        try:
            while (seen := self._look()) != self._seen or not self.keys.held:
                try:
                    return seen, self._whole()
                except ConfigError:  # the other process may have been writing just now
                    failures += 1
                    if failures == MAX_READS:
                        raise
            return None
        finally:
            self._reading.release()

    def _whole(self) -> tuple[Held, ...]:
        held = tuple(self._store.glance())
        if self.keys.held and not held:
            raise ConfigError(f"issuer.state: {self._state} holds no key any more", remedy=REMEDY)
        return held

    def _look(self) -> Look | None:
        try:
            seen = (self._state / "index.json").stat()
        except OSError:
            return None
        return seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_size


def vet(found: os.stat_result, name: str) -> None:
    """Raise ConfigError if another user could replace the keys: the agent would sign with his.

    A file that others can read passes: the kubelet's own default is 0644, in a volume that only the agent mounts.
    """
    if found.st_uid not in {0, os.geteuid()} or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"issuer.state: {name} can be changed by others: it belongs to uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}",
            remedy="let root or the agent own the directory and its files, and let no other user write there",
        )
