"""Refreshes of one identity: the keeper waits until token or credential is due, fetches, exchanges, stores.

Only the keeper retries; nothing below it does. It never looks at what a sink does with a grant: a full
disk costs no refresh.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import structlog

from agent.clock import Clock, wait_until
from agent.counters import Counters
from agent.errors import Defect, Ended, NotReady, Reaction, RefreshError, Unavailable, frames
from agent.liveness import within
from agent.model import Credential, Grant, IdentityToken, Key, Provider, Sink, Source
from agent.record import Profile, Record, WakeReason
from agent.rotation.adoption import adopt
from agent.rotation.confirmation import confirm_account, confirm_renewal, described
from agent.rotation.exchanger import Exchanger
from agent.rotation.limiter import FairLimiter
from agent.rotation.plan import Plan, note_on
from agent.schedule import Backoff
from agent.store import Store

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperOptions:
    """Settings of a keeper."""

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
        options: KeeperOptions,
        store: Store,
        limiter: FairLimiter,
        clock: Clock,
        random: Random,
        counters: Counters,
    ) -> None:
        self._profile = profile
        self._source = source
        self._provider = provider
        self._exchanger = Exchanger(profile, source, provider, clock)
        self._options = options
        self._store = store
        self._limiter = limiter
        self._clock = clock
        self._random = random
        self._counters = counters
        self._log = log.bind(identity=profile.name)

    @property
    def max_use(self) -> float | None:
        """Seconds after its issue at which what is held is withdrawn unless it was renewed; None where there is no such bound."""
        return self._profile.credential_policy.max_use

    async def watch(self) -> None:
        """Wake the keeper whenever the source reports a change; never returns."""
        while True:
            try:
                with within(None):  # for as long as it does not change
                    await self._source.changed()
            except RefreshError as error:
                self._log.warning("source.watch_failed", error=str(error))
                await self._clock.sleep(self._options.backoff.max)
                continue
            except Exception as error:  # noqa: BLE001  # a bug is kept to its identity: what is due by the clock still is
                self._log.error("source.watch_failed", error=type(error).__name__, frames=frames(error))  # no message: as below
                await self._clock.sleep(self._options.backoff.max)
                continue
            self._store.nudge(Key(self._profile.name))
            await self._clock.sleep(self._options.backoff.initial)

    async def keep(self, variant: str = "", sinks: Sequence[Sink] = ()) -> None:
        """Keep one key fresh until it is dropped, or a run-time variant has gone unused for one lifetime.

        The keeper first adopts what an earlier process left in `sinks`.
        """
        record = self._store.record(Key(self._profile.name, variant))
        if record is None:
            return
        plan = Plan(None if variant else self._profile.token_policy, self._profile.credential_policy, self._random)
        if not variant and record.grant is None:
            await adopt(sinks, self._profile, self._source, self._provider, self._store, self._clock)
        if ours := self._ours(record):
            self._exchanger.token = self._exchanger.token or ours.token
        while True:
            plan.observe(self._ours(record), self._clock.now())
            due = plan.due(self._clock.now())
            self._store.scheduled(record.key, due)
            await wait_until(self._clock, due, record.wake, began=plan.began)
            record.wake.clear()
            if self._store.record(record.key) is not record:
                return  # the store dropped it for another variant
            asked, record.asked = record.asked, set()
            now = self._clock.now()
            plan.observe(self._ours(record), now)
            if plan.backing_off(now) and not asked - {WakeReason.WANTED}:
                continue  # a herd of readers, or another loop's token: no reason to press
            if variant and variant not in self._profile.variants and not asked and plan.idle(record.used_at, now):
                self._store.drop(record.key)
                return
            token_due = bool(asked & {WakeReason.RENEW, WakeReason.CHANGED}) or plan.token_due(now)
            credential_due = self._ours(record) is None or WakeReason.RENEW in asked or plan.credential_due(now)
            if token_due or credential_due:
                await self._attempt(record, plan, token_due=token_due, credential_due=credential_due)
            else:
                plan.settled()
                self._store.settled(record.key)

    def _ours(self, record: Record) -> Grant | None:
        """Return the grant, unless other settings granted it: that one only stays until it is replaced."""
        return record.grant if record.grant and record.grant.digest == self._profile.digest else None

    async def _attempt(self, record: Record, plan: Plan, *, token_due: bool, credential_due: bool) -> None:
        began, result, token = self._clock.now(), "success", self._exchanger.token
        error: RefreshError | None = None
        try:
            async with self._limiter.slot(self._exchanger.host, self._options.namespace or f"identity {self._profile.name}"):
                began = self._clock.now()
                with within(self._options.timeout):
                    async with asyncio.timeout(self._options.timeout):
                        result = await self._refresh(record, plan, token_due=token_due, credential_due=credential_due)
        except TimeoutError:
            error = self._silence()
        except RefreshError as caught:
            error = caught
        except Exception as caught:  # noqa: BLE001  # one of the two places where a bug is kept to its identity
            error = Defect(
                f"{self._profile.name}: {type(caught).__name__} in source {self._profile.source} or provider {self._profile.provider}",
                remedy="this is a bug in the agent: please report it with the log",
            )
            self._log.error("refresh.defect", error=type(caught).__name__, frames=frames(caught))  # the message may hold a secret
        now = self._clock.now()
        self._counters.refreshed(
            self._profile.name, self._profile.provider, error.reaction if error else result, (now - began).total_seconds()
        )
        self._say(record, error)
        if isinstance(error, Ended):
            self._exchanger.token = None
            self._end()
        self._store.attempted(record.key, error, now)
        if error and record.failure:
            owes_token = token_due and self._exchanger.token is token
            plan.failed(error, record.failure.count, now, self._options.backoff, token=owes_token, credential=credential_due)

    async def _refresh(self, record: Record, plan: Plan, *, token_due: bool, credential_due: bool) -> str:
        """One attempt. Returns `success` or `unchanged`."""
        now = self._clock.now()
        own = self._store.record(Key(self._profile.name))
        account = own.account if own else None
        confirm_renewal(self._profile, account, now)
        unwatched = account is not None and not account.watched  # then only the API server's answer says that it still exists
        fetched = token_due or (credential_due and (unwatched or self._exchanger.used_up(now)))
        token = await self._fetch() if fetched else self._exchanger.token
        ours = self._ours(record)
        credential = ours.credential if ours else None
        if credential_due or credential is None:
            try:
                credential = await self._exchanger.exchange(token, record.key.variant)
            except BaseException:
                held = self._ours(record)
                if held and held.token != token:  # the token is good, and files wait for it
                    self._grant(record, plan, token, held.credential, token_brought=fetched)
                raise
            if token and not (self._exchanger.token and self._exchanger.token.principal == token.principal):
                raise NotReady(f"{self._profile.name}: while its token was exchanged, another principal's took its place")
        token_unchanged = ours is not None and _expiry(token) == _expiry(ours.token)
        credential_unchanged = ours is not None and credential.expires_at == ours.credential.expires_at
        if ours is None or token != ours.token or not credential_unchanged:
            self._grant(record, plan, token, credential, token_brought=fetched, credential_brought=credential_due)
        plan.succeeded(
            self._clock.now(), token_unchanged=fetched and token_unchanged, credential_unchanged=credential_due and credential_unchanged
        )
        return "unchanged" if token_unchanged and credential_unchanged else "success"

    async def _fetch(self) -> IdentityToken | None:
        """Return a new token. If it is another principal's than the one before, what that one was granted ends first."""
        token = await self._exchanger.fetch()
        if token is None:
            return None
        confirm_account(self._profile, token)
        held = [grant.token for record in self._store.records(self._profile.name) if (grant := self._ours(record)) and grant.token]
        if before := next((one for one in held if one.principal != token.principal), None):
            self._log.warning("identity.replaced", before=described(before), now=described(token))
            self._end()
        return token

    def _end(self) -> None:
        """Withdraw what the identity and its variants hold, and wake their loops: each needs a new credential."""
        self._store.end_all(self._profile.name)
        for record in self._store.records(self._profile.name):
            record.wake.set()

    def _silence(self) -> Unavailable:
        """Name every host of the attempt; the doctor finds out which of them is silent."""
        name = self._profile.name
        hosts = dict.fromkeys(filter(None, (self._source.host, self._provider.host)))
        whom = " or ".join(hosts) or f"source {self._profile.source} or provider {self._profile.provider}"
        return Unavailable(
            f"{name}: no answer from {whom} within {self._options.timeout:g} s",
            remedy=f"`wi-agent doctor {name}` says which link; refresh.timeout sets the limit",
        )

    def _grant(
        self,
        record: Record,
        plan: Plan,
        token: IdentityToken | None,
        credential: Credential,
        *,
        token_brought: bool = False,
        credential_brought: bool = False,
    ) -> None:
        if self._store.record(record.key) is not record:
            return  # dropped meanwhile
        grant = self._store.granted(Grant(key=record.key, digest=self._profile.digest, token=token, credential=credential))
        plan.observe(grant, self._clock.now(), token_brought=token_brought, credential_brought=credential_brought)
        own = self._store.record(Key(self._profile.name))
        if own and own is not record and own.grant and own.grant.digest == grant.digest and own.grant.token != token:
            self._store.granted(replace(own.grant, token=token))
            own.wake.set()  # its keeper has a new due time to wait for
        if not self._profile.sinks and not record.key.variant and grant.until:  # without a sink no courier logs it
            self._log.info("grant.renewed", generation=grant.generation, until=f"{grant.until:%Y-%m-%dT%H:%M:%SZ}")
        note = note_on(grant, self._profile.token_policy, self._profile.credential_policy)
        if note and not record.note:
            self._log.warning("grant.short", variant=record.key.variant, note=note)
        record.note = note

    def _say(self, record: Record, error: RefreshError | None) -> None:
        """Log a change once, at the level of its reaction, and its repetition at debug level."""
        before = record.failure
        if error is None:
            if before:
                self._log.info("refresh.recovered", variant=record.key.variant, failures=before.count)
            return
        if before and (before.reaction, before.message) == (error.reaction, error.message):
            self._log.debug("refresh.failed", variant=record.key.variant, result=error.reaction, failures=before.count + 1)
            return
        level = "info" if error.reaction is Reaction.NOT_READY else "error" if error.reaction.needs_a_change else "warning"
        getattr(self._log, level)(
            "refresh.failed", variant=record.key.variant, result=error.reaction, error=error.message, remedy=error.remedy
        )


def _expiry(token: IdentityToken | None) -> object:
    return token and token.expires_at
