"""The embedded issuer's keys at work: one signs, the next is published ahead of its turn, the last lives out its tokens.

The rules are in `rotation.py`, the files in `keystore.py`, the cryptography in `keys.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Never, Self

import structlog

from agent.clock import STEP, Clock
from agent.errors import ConfigError, NotReady, Rejected
from agent.issuer import keys, rotation
from agent.issuer.keystore import KeyStore
from agent.issuer.rotation import CACHE, Rhythm, Term
from agent.offload import in_thread

log = structlog.get_logger()

GLANCES = 3
"""Looks at a state directory that another process is changing."""

Held = tuple[Term, keys.SigningKey]


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
        self._rhythm = Rhythm(every=every, publish_before=publish_before, longest_lifetime=longest_lifetime, cache=cache)
        self._clock = clock
        self._held: tuple[Held, ...] = ()
        self._spare: tuple[keys.SigningKey, bytes] | None = None
        """A key and its PEM, not in the index: what a failed change left for the next try, so that no strays pile up.
        It is shown already."""
        self._public: dict[str, Any] = {"keys": []}
        self._signing = ""
        self._ahead: str | None = None

    async def open(self, *, shared: bool = False) -> None:
        """Loads the keys, and makes the first where there is none; a full disk only delays that until `run`.

        `shared`: for reading beside a running agent, and where none runs, for making the next key well ahead.
        Raises ConfigError where the state directory is unusable, in use, or not whole.
        """
        loaded = await in_thread("issuer keys", lambda: self._load(shared=shared))
        self._take(
            tuple((replace(term, longest_lifetime=max(term.longest_lifetime, self._rhythm.longest_lifetime)), key) for term, key in loaded)
        )
        if not self._store.writable:
            return
        try:
            if [term for term, _ in loaded] != self._terms:
                await self._index(self._held)
            await self.rotate()
            if shared and rotation.signing(self._terms, self._clock.now()) == len(self._held) - 1:
                await self._publish()
        except OSError as error:
            self._failed(error, STEP)

    async def glance(self) -> None:
        """Takes the keys as they lie there, beside a running agent or without one, and touches nothing.

        Raises ConfigError where they cannot be read, or the state is not whole.
        """
        self._take(tuple(await in_thread("issuer keys", self._store.glance)))

    def close(self) -> None:
        """Lets go of the directory and its lock."""
        self._store.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A JWT of these claims by the key whose turn it is.

        Raises NotReady before there is a key, Rejected where the token would outlive its key's publication.
        """
        if not self._held:
            raise NotReady("the issuer has no key yet", remedy="its state directory could not be written: see the log")
        now = self._clock.now()
        if claims["exp"] > now.timestamp() + self._rhythm.longest_lifetime:
            raise Rejected(
                "the token would live longer than issuer.lifetime.max", remedy="shorten source.lifetime or raise issuer.lifetime.max"
            )
        return self._held[rotation.signing(self._terms, now)][1].sign(claims)

    def public_keys(self) -> dict[str, Any]:
        """The key set to publish (RFC 7517), the next key before it signs and the last for as long as its tokens live."""
        return self._public

    def algorithms(self) -> list[str]:
        """Of all published keys; more than one only after `issuer.algorithm` was changed."""
        return sorted({str(key["alg"]) for key in self._public["keys"]})

    def states(self) -> list[tuple[str, str, datetime]]:
        """(kid, state, since) of each key; the states are `published`, `signing` and `retired`."""
        return rotation.phases(self._terms, self._clock.now())

    @property
    def max_age(self) -> int:
        """Seconds for which the key set may be cached: a copy has to be gone before a key signs that it lacks."""
        return int(min(self._rhythm.cache, self._rhythm.publish_before))

    @property
    def complete_until(self) -> datetime:
        """Until when a copy of the key set, taken now, knows every key that signs."""
        soonest = self._clock.now() + timedelta(seconds=self._rhythm.publish_before)
        return max(rotation.next_turn(self._terms, self._rhythm), soonest)

    async def rotate(self) -> None:
        """Does what is due: drops what is spent, publishes what is next. Raises OSError, keeping what it had."""
        now = self._clock.now()
        if gone := rotation.spent(self._terms, now, self._rhythm):
            await self._drop(gone)
        if not self._held or self._outdated or rotation.publish_due(self._terms, self._rhythm) <= now:
            await self._publish()
        if (ahead := rotation.dated_ahead(self._terms, now, self._rhythm)) and ahead != self._ahead:
            log.warning("key.dated_ahead", kid=ahead, why="the clock was ahead when it was made: the key before it signs until then")
        self._ahead = ahead
        self._tell_signer()

    async def run(self) -> Never:
        """Rotates until cancelled. A bad disk ends nothing: the keys at hand go on."""
        failures = 0
        while True:
            try:
                await self.rotate()
            except OSError as error:
                failures += 1
                delay = min(STEP, 2.0 ** min(failures - 1, 6))
                self._failed(error, delay)
            else:
                if failures:
                    log.info("key.rotation_recovered", after=failures)
                failures = 0
                now = self._clock.now()
                delay = min(STEP, max(0.1, (rotation.next_change(self._terms, now, self._rhythm) - now).total_seconds()))
            await self._clock.sleep(delay)

    @property
    def _terms(self) -> Sequence[Term]:
        return [term for term, _ in self._held]

    @property
    def _outdated(self) -> bool:
        """Whether the configured algorithm has changed since the newest key was made."""
        return self._held[-1][1].algorithm != self._algorithm

    def _load(self, *, shared: bool) -> list[Held]:
        self._store.open(shared=shared)
        try:
            for _ in range(GLANCES - 1 if shared else 0):
                try:
                    return self._store.load()
                except ConfigError:
                    continue  # its owner may have dropped a key between index and PEM: the index is another by now
            return self._store.load()
        except BaseException:
            self._store.close()
            raise

    def _take(self, held: tuple[Held, ...]) -> None:
        self._held = held
        self._show()

    def _show(self) -> None:
        shown = [key for _, key in self._held]
        if self._spare and self._spare[0] not in shown:
            shown.append(self._spare[0])
        self._public = {"keys": [dict(key.jwk) for key in shown]}

    async def _publish(self) -> None:
        """Shows a new key to the world, and only then writes down since when: it can have been seen for longer, never for less.

        Where that fails it stays shown: the disk may have the date all the same, and a key that never signs harms nobody.
        """
        if self._spare is None:
            self._spare = await in_thread("issuer key", lambda: keys.generate(self._algorithm))
            self._show()
        key, pem = self._spare
        await in_thread("issuer key", lambda: self._store.add(key, pem))
        now = self._clock.now()
        if self._held:
            term = rotation.next_term(self._terms, key.kid, now, self._rhythm, replaces=self._outdated)
        else:
            term = rotation.first_term(key.kid, now, self._rhythm)
        await self._index((*self._held, (term, key)))
        self._spare = None
        log.info("key.published", kid=key.kid, signs_from=term.signs_from.isoformat())

    async def _drop(self, gone: Sequence[str]) -> None:
        await self._index(tuple(held for held in self._held if held[0].kid not in gone))
        for kid in gone:
            log.info("key.dropped", kid=kid)
            await in_thread("issuer key", lambda kid=kid: self._store.remove(kid))  # type: ignore[misc]  # the loop's own kid

    async def _index(self, held: tuple[Held, ...]) -> None:
        terms = [term for term, _ in held]
        await in_thread("issuer keys", lambda: self._store.index(terms))
        self._take(held)

    def _tell_signer(self) -> None:
        """Once for each that comes to sign."""
        signer = self._terms[rotation.signing(self._terms, self._clock.now())] if self._held else None
        if signer and signer.kid != self._signing:
            self._signing = signer.kid
            log.info("key.signing", kid=signer.kid, since=signer.signs_from.isoformat())

    def _failed(self, error: OSError, delay: float) -> None:
        log.warning("key.rotation_failed", reason=error.strerror or str(error), keys=len(self._held), next_try_in=delay)
