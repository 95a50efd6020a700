"""The embedded issuer's keys at work: one signs, the next is published ahead of its turn, the last lives out its tokens.

The rules are in `rotation.py`, the files in `keystore.py`, the cryptography in `keys.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Never, Self

import structlog

from agent.clock import STEP, Clock
from agent.errors import ConfigError
from agent.issuer import keys, rotation
from agent.issuer.held_keys import Held, HeldKeys
from agent.issuer.keystore import KeyStore
from agent.issuer.rotation import CACHE, Rhythm
from agent.offload import in_thread
from agent.schedule import backoff_seconds

log = structlog.get_logger()

MAX_READS = 3
"""Of a state directory that another process is changing."""
FIRST_PAUSE_SECONDS = 1.0
"""After a rotation that failed once."""


class Keyring:
    """The keys of one issuer. Nothing happens before `open`; `run` then turns them over for as long as it is let."""

    def __init__(
        self,
        state: Path,
        algorithm: keys.Algorithm,
        every: float,
        publish_before: float,
        longest_lifetime: float,
        clock: Clock,
        cache: float = CACHE,
    ) -> None:
        """All lengths of time in seconds; `cache` is how long verifiers may keep the key set."""
        self._store = KeyStore(state)
        self._algorithm: keys.Algorithm = algorithm
        self.keys = HeldKeys(
            rhythm=Rhythm(every=every, publish_before=publish_before, longest_lifetime=longest_lifetime, cache=cache),
            clock=clock,
            remedy="the agent cannot write its state directory: see the log",
        )
        self._clock = clock
        self._spare: tuple[keys.SigningKey, bytes] | None = None
        """A key and its PEM that the index does not name: a failed change leaves it to the next try, so that no strays pile up.
        It is published already."""
        self._ahead: str | None = None

    async def open(self, *, shared: bool = False) -> None:
        """Loads the keys, and makes the first where there is none; a full disk only delays that until `run`.

        `shared`: for reading beside a running agent, and where none runs, for making the next key well ahead.
        Raises ConfigError where the state directory is unusable, in use, or not whole.
        """
        loaded = await in_thread("issuer keys", lambda: self._load(shared=shared))
        self._take(loaded)
        if not self._store.writable:
            return
        try:
            if [term for term, _ in loaded] != self.keys.terms:
                await self._index(self.keys.held)
            await self.rotate()
            if shared and rotation.signing(self.keys.terms, self._clock.now()) == len(self.keys.held) - 1:
                await self._publish()
        except OSError as error:
            self._failed(error, STEP)

    async def glance(self) -> None:
        """Read the keys, beside a running agent or without one, and change nothing.

        Raises ConfigError if they cannot be read or the state is not whole.
        """
        self._take(await in_thread("issuer keys", self._store.glance))

    def close(self) -> None:
        """Close the directory and release its lock."""
        self._store.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def rotate(self) -> None:
        """Does what is due: drops what is spent, publishes what is next. Raises OSError, keeping what it had."""
        now = self._clock.now()
        if gone := rotation.spent(self.keys.terms, now, self.keys.rhythm):
            await self._drop(gone)
        if not self.keys.held or self._outdated or rotation.publish_due(self.keys.terms, self.keys.rhythm) <= now:
            await self._publish()
        if (ahead := rotation.dated_ahead(self.keys.terms, now, self.keys.rhythm)) and ahead != self._ahead:
            log.warning("key.dated_ahead", kid=ahead, why="the clock was ahead when it was made: the key before it signs until then")
        self._ahead = ahead
        self.keys.log_signer()

    async def run(self) -> Never:
        """Rotate until cancelled. A failing disk ends nothing: the held keys stay in use."""
        failures = 0
        while True:
            try:
                await self.rotate()
            except OSError as error:
                failures += 1
                delay = backoff_seconds(failures, first=FIRST_PAUSE_SECONDS, longest=STEP)
                self._failed(error, delay)
            else:
                if failures:
                    log.info("key.rotation_recovered", after=failures)
                failures = 0
                now = self._clock.now()
                delay = min(STEP, max(0.1, (rotation.next_change(self.keys.terms, now, self.keys.rhythm) - now).total_seconds()))
            await self._clock.sleep(delay)

    @property
    def _outdated(self) -> bool:
        """Whether the configured algorithm has changed since the newest key was made."""
        return self.keys.held[-1][1].algorithm != self._algorithm

    def _load(self, *, shared: bool) -> list[Held]:
        self._store.open(shared=shared)
        try:
            for _ in range(MAX_READS - 1 if shared else 0):
                try:
                    return self._store.load()
                except ConfigError:
                    continue  # its owner may have dropped a key between index and PEM: the index is another by now
            return self._store.load()
        except BaseException:
            self._store.close()
            raise

    def _take(self, loaded: Sequence[Held]) -> None:
        """Hold these keys; tokens may live as long as the configuration says now, if that is longer than when a key was made."""
        longest = self.keys.rhythm.longest_lifetime
        self.keys.held = tuple((replace(term, longest_lifetime=max(term.longest_lifetime, longest)), key) for term, key in loaded)

    async def _publish(self) -> None:
        """Shows a new key to the world, and only then writes down since when: it can have been seen for longer, never for less.

        If that fails, the key stays published: the disk may hold the date all the same, and a key that never signs does no harm.
        """
        if self._spare is None:
            self._spare = await in_thread("issuer key", lambda: keys.generate(self._algorithm))
            self.keys.announced = self._spare[0]
        key, pem = self._spare
        await in_thread("issuer key", lambda: self._store.add(key, pem))
        now = self._clock.now()
        if self.keys.held:
            term = rotation.next_term(self.keys.terms, key.kid, now, self.keys.rhythm, replaces=self._outdated)
        else:
            term = rotation.first_term(key.kid, now, self.keys.rhythm)
        await self._index((*self.keys.held, (term, key)))
        self._spare = self.keys.announced = None
        log.info("key.published", kid=key.kid, signs_from=term.signs_from.isoformat())

    async def _drop(self, gone: Sequence[str]) -> None:
        await self._index(tuple(held for held in self.keys.held if held[0].kid not in gone))
        for kid in gone:
            log.info("key.dropped", kid=kid)
            await in_thread("issuer key", lambda kid=kid: self._store.remove(kid))  # type: ignore[misc]  # the loop's own kid

    async def _index(self, held: tuple[Held, ...]) -> None:
        terms = [term for term, _ in held]
        await in_thread("issuer keys", lambda: self._store.index(terms))
        self.keys.held = held

    def _failed(self, error: OSError, delay: float) -> None:
        log.warning("key.rotation_failed", reason=error.strerror or str(error), keys=len(self.keys.held), next_try_in=delay)
