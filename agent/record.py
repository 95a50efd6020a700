"""The record of one identity at one moment and its state. The store keeps the records; every reader may use them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from agent.errors import Reaction, RefreshError
from agent.model import Delivery, Grant, Key, Secret
from agent.schedule import Policy, Span, State, state_of, worst

UNSEEN = "its ServiceAccount cannot be seen"


class WakeReason(StrEnum):
    """Why a keeper acts ahead of its due time."""

    RENEW = "renew"
    """An operator has asked for a renewal."""
    CHANGED = "changed"
    """The source has reported a change."""
    WANTED = "wanted"
    """A client waits for a credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What the configuration says of an identity, as far as readers need it."""

    name: str
    digest: str
    source: str
    """Its type, as are the next two."""
    provider: str
    sinks: tuple[str, ...]
    """Names of its sinks."""
    variants: tuple[str, ...] = ()
    """Kept fresh whether anybody asks for them or not."""
    required: bool = True
    dialects: tuple[str, ...] = ()
    """How it is served."""
    authorization: Secret | None = None
    """The authorization that clients send, in the dialects that have one."""
    account_uid: str = ""
    """Of the ServiceAccount as it was seen when the identity was started; empty if none was seen."""
    follows: bool = False
    """Whether annotations of that ServiceAccount name the principal."""
    default: bool = False
    """Whether the well-known paths of its dialects are its on the main listener."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What its dialects say beside the credential: region, project and so on; nothing secret."""
    token_policy: Policy = Policy()
    credential_policy: Policy = Policy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong last, and how often in a row."""

    reaction: Reaction
    message: str
    remedy: str
    at: datetime
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """When and by whom an identity was revoked."""

    at: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """How one sink stands, from its last read-back."""

    checked_at: datetime
    generation: int = 0
    """Of the newest grant that arrived there."""
    delivery: Delivery | None = None
    failure: Failure | None = None
    losses: int = 0
    """How often a delivery was missing or changed: another process writes to the sink, or moves it."""
    lost_at: datetime | None = None
    """When last."""


@dataclass(slots=True, kw_only=True)
class Observation:
    """The last observation of an identity's ServiceAccount; its watcher keeps this up to date."""

    exists: bool = False
    """By the newest that was seen."""
    watched: bool = False
    """Whether a change would be seen at this moment."""
    seen_at: datetime | None = None
    """When it was last confirmed, if it is not watched; TCP keepalive ends a dead connection after about
    60 s of silence, the watch's own timeout after 390 s."""
    error: RefreshError | None = None
    """Why it is not watched."""

    def last_seen(self, now: datetime) -> datetime | None:
        """Return when the ServiceAccount was last confirmed; None if it never was, or is known not to exist."""
        return (now if self.watched else self.seen_at) if self.exists else None

    def note(self) -> str:
        """Return what an operator should know; empty while it is watched, and if it never was."""
        if self.error is None or self.seen_at is None or self.watched:
            return ""
        return f"{UNSEEN} since {self.seen_at:%Y-%m-%dT%H:%M:%SZ}: {self.error.message}; what was seen last holds"


@dataclass(slots=True)
class Record:
    """What the store knows under one key."""

    key: Key
    grant: Grant | None = None
    due: datetime | None = None
    """When the keeper will act next."""
    failure: Failure | None = None
    note: str = ""
    """A message for the operator that is not a failure."""
    account: Observation | None = None
    """Of the ServiceAccount; None for identities of other sources."""
    sink_statuses: dict[str, SinkStatus] = field(default_factory=dict)
    used_at: datetime | None = None
    renewed_at: datetime | None = None
    attempts: int = 0
    generations: int = 0
    """Of grants so far: a grant after a withdrawal is not mistaken for one before it."""
    endings: int = 0
    """How often what was held was withdrawn: each courier withdraws once for each, whatever is granted meanwhile."""
    ended: bool = False
    """The grant was withdrawn and none has replaced it: couriers empty the sinks."""
    asked: set[WakeReason] = field(default_factory=set)
    """Why the keeper was woken: renew, changed, wanted."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, whenever the record changes."""


def token_span(grant: Grant) -> Span | None:
    """The life of the grant's token, if it has one."""
    return Span(grant.token.issued_at, grant.token.expires_at) if grant.token else None


def credential_span(grant: Grant) -> Span | None:
    """The life of the grant's credential, if that has a clock of its own."""
    issued, expires = grant.credential.issued_at, grant.credential.expires_at
    return Span(issued, expires) if issued and expires else None


def serving_span(grant: Grant) -> Span | None:
    """Return the life of what is served: the credential's, or the token's if nothing was exchanged."""
    return credential_span(grant) or token_span(grant)


def held_state(grant: Grant, profile: Profile, now: datetime) -> State:
    """How what is held stands."""
    return _worst_of(token_span(grant), credential_span(grant), profile, now)


def sink_state(record: Record, sink: str, profile: Profile, now: datetime) -> State:
    """Return the state of a sink's content."""
    sink_status = record.sink_statuses.get(sink)
    found = sink_status.delivery if sink_status else None
    if found is None:
        return State.MISSING
    token = Span(found.token_issued_at, found.token_expires_at) if found.token_issued_at and found.token_expires_at else None
    credential = (
        Span(found.credential_issued_at, found.credential_expires_at)
        if found.credential_issued_at and found.credential_expires_at
        else None
    )
    return _worst_of(token, credential, profile, now)


def _worst_of(token: Span | None, credential: Span | None, profile: Profile, now: datetime) -> State:
    spans = [(token, profile.token_policy), (credential, profile.credential_policy)]
    return worst([state_of(span, policy, now) for span, policy in spans if span])
