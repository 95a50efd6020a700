"""Adoption of an earlier process's files, so that a restart sends no request and leaves no gap."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import structlog

from agent.claims import read_token
from agent.clock import Clock
from agent.errors import RefreshError, Rejected, frames
from agent.model import Grant, IdentityToken, Key, PriorDelivery, Provider, Signs, Sink, Source
from agent.record import Profile
from agent.rotation.max_use import used_up
from agent.store import Store

log = structlog.get_logger()

ADOPTION_TIMEOUT_SECONDS = 10.0
"""For one sink to read what an earlier process left."""


async def adopt(sinks: Sequence[Sink], profile: Profile, source: Source, provider: Provider, store: Store, clock: Clock) -> None:
    """Adopt from the first sink whose content passes every check. Raises nothing: the keeper fetches what was not adopted."""
    said = log.bind(identity=profile.name)
    for sink in sinks:
        try:
            async with asyncio.timeout(ADOPTION_TIMEOUT_SECONDS):
                prior = await sink.adopt()
            grant = _revive(prior, profile, provider, clock.now()) if prior else None
        except (RefreshError, TimeoutError) as error:
            said.info("generation.not_adopted", sink=sink.name, reason=str(error) or "no answer")
            continue
        except Exception as error:  # noqa: BLE001  # a bug in a sink is kept to this identity; its message may hold a secret
            said.error("generation.not_adopted", sink=sink.name, reason=type(error).__name__, frames=frames(error))
            continue
        if grant and grant.token and _anothers(grant.token, profile):
            store.end(grant.key)
            said.info("generation.not_adopted", sink=sink.name, reason="its ServiceAccount is another one of the same name now")
            return
        if grant and used_up(grant, profile.credential_policy.max_use, clock.now()):
            store.end(grant.key)
            said.info("generation.not_adopted", sink=sink.name, reason="it is older than refresh.maxUse")
            return
        if prior and grant and _confirmed(grant, source, said.bind(sink=sink.name)):
            granted = store.granted(grant)
            store.sink_checked(granted.key, sink.name, clock.now(), generation=granted.generation, delivery=prior.delivery)
            said.info("generation.adopted", sink=sink.name)
            return


def _confirmed(grant: Grant, source: Source, said: Any) -> bool:
    """Return whether the source stands by the token, where the source signs its tokens itself."""
    if grant.token and isinstance(source, Signs):
        try:
            source.confirm(grant.token)
        except Rejected as error:
            said.warning("generation.not_adopted", reason=error.message, remedy=error.remedy)
            return False
    return True


def _anothers(token: IdentityToken, profile: Profile) -> bool:
    """Return whether the token is of another ServiceAccount than the one that was seen."""
    return bool(profile.account_uid and token.account_uid and token.account_uid != profile.account_uid)


def _revive(prior: PriorDelivery, profile: Profile, provider: Provider, now: datetime) -> Grant | None:
    """Return the grant in these files, as far as it still works; None if that is too little. Raises Rejected."""
    credential = provider.restore(prior)
    if credential is None or (credential.expires_at and credential.expires_at <= now):
        return None
    token = None
    if prior.token is not None:
        token = read_token(prior.token.reveal(), whose=profile.name, now=now, given_expiry=prior.delivery.token_expires_at)
    if token is None or token.expires_at <= now:
        if credential.expires_at is None or prior.token is not None:
            return None
        token = None
    return Grant(key=Key(profile.name), digest=profile.digest, token=token, credential=credential)
