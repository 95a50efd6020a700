"""An identity that a ServiceAccount binds: its watcher, and what it was before the operator changed its settings."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.model import Sink
from agent.serviceaccounts.annotations import ObservedServiceAccount, account_of
from agent.serviceaccounts.watcher import ServiceAccountWatcher


class Previous(NamedTuple):
    """What an identity was before the operator changed its settings."""

    leaving: list[Sink]
    """Where it lies until the new is delivered."""
    watcher: ServiceAccountWatcher | None


class Watching(NamedTuple):
    """One identity's watcher, and the task that carries out what it reports."""

    watcher: ServiceAccountWatcher
    turn: asyncio.Lock
    """Held while a change is carried out, so that a reload does not end it half done."""
    tasks: list[asyncio.Task[None]]
    denied: asyncio.Event
    """Set once the agent was refused the watch before it had seen the ServiceAccount."""

    @property
    def unconfirmed(self) -> bool:
        """Whether the agent may not watch the ServiceAccount, and has not seen it."""
        observation = self.watcher.observation
        return observation.error is not None and observation.error.reaction == "rejected" and observation.seen_at is None


def names_another(previous: Previous, now: ServiceAccountWatcher | None) -> bool:
    """Return whether the same ServiceAccount names another principal now, or was created anew."""
    before = previous.watcher
    if before is None or now is None or before.last_observed is None or now.last_observed is None:
        return False
    if _account(before) != _account(now):
        return False  # the operator chose another ServiceAccount
    if before.last_observed.uid != now.last_observed.uid:
        return True
    return before.follows and now.follows and _principal(before) != _principal(now)


def _account(watcher: ServiceAccountWatcher) -> tuple[str, str] | None:
    account = account_of(watcher.identity)
    return (account.namespace, account.name) if account else None


def _principal(watcher: ServiceAccountWatcher) -> Sequence[str]:
    last_observed = watcher.last_observed or ObservedServiceAccount("", {})
    wanted: Mapping[str, str] = watcher.identity.provider.annotations()
    return [last_observed.annotations.get(annotation, "") for annotation in wanted]
