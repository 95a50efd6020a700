"""Keeps one identity fresh: waits until its token or its credential is due, fetches, exchanges, remembers.

The keeper is the only one who retries; nothing below it does. It never looks at what a sink does with a grant: a full
disk costs no refresh.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import structlog

from agent.claims import read_token
from agent.clock import Clock, wait_until
from agent.errors import Defect, RefreshError, Unavailable, frames
from agent.gate import Gate
from agent.model import Credential, Grant, IdentityToken, Key, Legacy, Provider, Sink, Source
from agent.plan import Plan, note_on
from agent.record import Profile, Record
from agent.schedule import Backoff
from agent.store import Store
from agent.tally import Tally

log = structlog.get_logger()

LEAST_LEFT = 60.0
"""Seconds: a token with less life left is not used for an exchange."""
ADOPTION_TIMEOUT = 10.0
"""Seconds that a sink may take to say what an earlier process left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a keeper goes about it."""

    timeout: float = 10.0
    """Seconds for one attempt."""
    backoff: Backoff = Backoff()
    namespace: str = ""
    """For a fair share of the slots."""


class Keeper:
    """One for each identity; runs one loop for it and one for each run-time variant."""

    def __init__(
        self,
        profile: Profile,
        source: Source,
        provider: Provider,
        *,
        habits: Habits,
        store: Store,
        gate: Gate,
        clock: Clock,
        random: Random,
        tally: Tally,
    ) -> None:
        self._profile = profile
        self._source = source
        self._provider = provider
        self._habits = habits
        self._store = store
        self._gate = gate
        self._clock = clock
        self._random = random
        self._tally = tally
        self._fetching = asyncio.Lock()
        self._token: IdentityToken | None = None
        self._log = log.bind(identity=profile.name)

    async def watch(self) -> None:
        """Passes on what the source says of itself; for ever."""
        while True:
            try:
                await self._source.changed()
            except RefreshError as error:
                self._log.warning("source.watch_failed", error=str(error))
                await self._clock.sleep(self._habits.backoff.max)
                continue
            self._store.nudge(Key(self._profile.name))
            await self._clock.sleep(self._habits.backoff.initial)

    async def keep(self, variant: str = "", sinks: Sequence[Sink] = ()) -> None:
        """Keeps one key fresh; for ever, or until a variant has gone unused for one lifetime.

        `sinks` are asked first for what an earlier process left.
        """
        record = self._store.record(Key(self._profile.name, variant))
        if record is None:
            return
        plan = Plan(None if variant else self._profile.token_policy, self._profile.credential_policy, self._random)
        if not variant and record.grant is None:
            await self._adopt(sinks)
        if ours := self._ours(record):
            self._token = self._token or ours.token
        while True:
            plan.observe(self._ours(record), self._clock.now())
            due = plan.due(self._clock.now())
            self._store.scheduled(record.key, due)
            await wait_until(self._clock, due, record.wake, began=plan.began)
            record.wake.clear()
            asked, record.asked = record.asked, set()
            now = self._clock.now()
            plan.observe(self._ours(record), now)
            everything = self._ours(record) is None or "renew" in asked
            token_due = everything or "changed" in asked or plan.token_due(now)
            credential_due = everything or plan.credential_due(now)
            if variant and not asked and plan.unused_since(record.used_at):
                self._store.drop(record.key)
                return
            if token_due or credential_due:
                await self._attempt(record, plan, token_due=token_due, credential_due=credential_due)
            else:
                plan.settled()

    def _ours(self, record: Record) -> Grant | None:
        """What is held, unless it was granted under other settings: then it only stays until there is better."""
        return record.grant if record.grant and record.grant.digest == self._profile.digest else None

    async def _attempt(self, record: Record, plan: Plan, *, token_due: bool, credential_due: bool) -> None:
        began, result = self._clock.now(), "success"
        error: RefreshError | None = None
        try:
            async with self._gate.slot(self._provider.host, self._habits.namespace or f"identity {self._profile.name}"):
                began = self._clock.now()
                async with asyncio.timeout(self._habits.timeout):
                    result = await self._refresh(record, plan, token_due=token_due, credential_due=credential_due)
        except TimeoutError:
            error = Unavailable(
                f"{self._profile.name}: no answer within {self._habits.timeout:g} s",
                remedy="`wi-agent doctor` says which link; refresh.timeout sets the limit",
            )
        except RefreshError as caught:
            error = caught
        except Exception as caught:  # noqa: BLE001  # one of the two places where a bug is kept to its identity
            error = Defect(
                f"{self._profile.name}: {type(caught).__name__} in source {self._profile.source} or provider {self._profile.provider}",
                remedy="this is a bug in the agent: please report it with the log",
            )
            self._log.error("refresh.defect", error=type(caught).__name__, frames=frames(caught))  # the message may hold a secret
        now = self._clock.now()
        self._tally.refreshed(
            self._profile.name, self._profile.provider, error.reaction if error else result, (now - began).total_seconds()
        )
        self._say(record, error)
        self._store.attempted(record.key, error, now)
        if error and record.failure:
            plan.failed(error, record.failure.count, now, self._habits.backoff)

    async def _refresh(self, record: Record, plan: Plan, *, token_due: bool, credential_due: bool) -> str:
        """One attempt. Returns `success` or `unchanged`."""
        now, ours = self._clock.now(), self._ours(record)
        token = self._token
        if token_due or token is None or (token.expires_at - now).total_seconds() < LEAST_LEFT:
            token = await self._fetch()
        credential = ours.credential if ours else None
        if credential_due or credential is None:
            try:
                credential = await self._provider.exchange(token, record.key.variant)
            except BaseException:
                if ours and ours.token != token:  # the token is good, and files wait for it
                    self._grant(record, plan, token, ours.credential)
                raise
        token_unchanged = ours is not None and _expiry(token) == _expiry(ours.token)
        credential_unchanged = ours is not None and credential.expires_at == ours.credential.expires_at
        if ours is None or token != ours.token or not credential_unchanged:
            self._grant(record, plan, token, credential)
        plan.succeeded(
            self._clock.now(), token_unchanged=token_due and token_unchanged, credential_unchanged=credential_due and credential_unchanged
        )
        return "unchanged" if token_unchanged and credential_unchanged else "success"

    async def _fetch(self) -> IdentityToken | None:
        """A new token, for the identity and for its variants: the identity's own grant gets it too."""
        before = self._token
        async with self._fetching:
            if self._token is not before:
                return self._token  # fetched while this one waited
            self._token = await self._source.fetch(self._provider.audiences)
            return self._token

    def _grant(self, record: Record, plan: Plan, token: IdentityToken | None, credential: Credential) -> None:
        now = self._clock.now()
        grant = self._store.granted(Grant(key=record.key, digest=self._profile.digest, token=token, credential=credential))
        plan.observe(grant, now)
        own = self._store.record(Key(self._profile.name))
        if own and own is not record and own.grant and own.grant.digest == grant.digest and own.grant.token != token:
            self._store.granted(replace(own.grant, token=token))
            own.wake.set()  # its keeper has a new due time to wait for
        note = note_on(grant, self._profile.token_policy, self._profile.credential_policy)
        if note and note != record.note:
            self._log.warning("grant.short", variant=record.key.variant, note=note)
        record.note = note

    async def _adopt(self, sinks: Sequence[Sink]) -> None:
        """Takes over what lies in the first sink that vouches for it, so that a restart asks nobody for anything."""
        for sink in sinks:
            try:
                async with asyncio.timeout(ADOPTION_TIMEOUT):
                    legacy = await sink.adopt()
                grant = self._revive(legacy) if legacy else None
            except (RefreshError, TimeoutError) as error:
                self._log.info("generation.not_adopted", sink=sink.name, reason=str(error) or "no answer")
                continue
            except Exception as error:  # noqa: BLE001  # a bug in a sink is kept to this identity
                self._log.error("generation.not_adopted", sink=sink.name, reason=type(error).__name__, frames=frames(error))
                continue
            if legacy and grant:
                granted = self._store.granted(grant)
                now = self._clock.now()
                self._store.landed(granted.key, sink.name, now, generation=granted.generation, delivery=legacy.delivery)
                self._log.info("generation.adopted", sink=sink.name)
                return

    def _revive(self, legacy: Legacy) -> Grant | None:
        """The grant that these files hold, as far as it still works; None where that is too little. Raises Rejected."""
        now = self._clock.now()
        credential = self._provider.restore(legacy)
        if credential is None or (credential.expires_at and credential.expires_at <= now):
            return None
        token = None
        if legacy.token is not None:
            token = read_token(legacy.token.reveal(), whose=self._profile.name, now=now, given_expiry=legacy.delivery.token_expires_at)
        if token is None or token.expires_at <= now:
            if credential.expires_at is None or legacy.token is not None:
                return None
            token = None
        return Grant(key=Key(self._profile.name), digest=self._profile.digest, token=token, credential=credential)

    def _say(self, record: Record, error: RefreshError | None) -> None:
        """A change is said once, loudly or quietly as it deserves; repetition only for those who want to read it."""
        before = record.failure
        if error is None:
            if before:
                self._log.info("refresh.recovered", variant=record.key.variant, failures=before.count)
            return
        if before and (before.reaction, before.message) == (error.reaction, error.message):
            self._log.debug("refresh.failed", variant=record.key.variant, result=error.reaction, failures=before.count + 1)
            return
        level = "info" if error.reaction == "not_ready" else "error" if error.reaction in {"rejected", "defect"} else "warning"
        getattr(self._log, level)(
            "refresh.failed", variant=record.key.variant, result=error.reaction, error=error.message, remedy=error.remedy
        )


def _expiry(token: IdentityToken | None) -> object:
    return token and token.expires_at
