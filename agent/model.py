"""The nouns of the agent and its three verbs.

Data goes one way: a Source fetches an IdentityToken, a Provider exchanges it for a Credential, the two
make a Grant, and a Sink writes the Grant where the workload looks. Read this file first.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Never, Protocol, runtime_checkable


class Secret:
    """Text that must not be seen. Only `reveal` shows it, and that word can be searched for."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself; for adapters and renderers only."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    __hash__ = None  # type: ignore[assignment]  # a secret must not be a key

    def __reduce__(self) -> Never:
        raise TypeError("a Secret is not serialised")


@dataclass(frozen=True, slots=True)
class Key:
    """What the store files a grant under."""

    identity: str
    variant: str = ""
    """Azure resource or GCP scopes asked for at run time; empty for what the configuration names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityToken:
    """A short-lived OIDC JWT that says who the workload is. Not verified here: who trusts it verifies it."""

    value: Secret
    issuer: str
    subject: str
    audiences: tuple[str, ...]
    issued_at: datetime
    """The token's own `iat`, UTC; when it was received, where it has none."""
    expires_at: datetime
    """The earliest of `exp`, `kubernetes.io/warnafter` and what its giver said, UTC."""
    id: str = ""
    """`jti`, where the token has one."""
    account_uid: str = ""
    """Of the ServiceAccount, by the claim `kubernetes.io`; empty for other tokens."""
    note: str = ""
    """For people: in what the token is less than was asked for."""
    companions: Mapping[str, str] = field(default_factory=dict)
    """Public files that belong beside the token, by name: `ca.crt`, `namespace`."""

    @property
    def principal(self) -> tuple[str, str, str]:
        """Issuer, subject and ServiceAccount UID: a token that differs in one of them is another identity's."""
        return self.issuer, self.subject, self.account_uid


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where the consumer of an identity finds its files, so that one file can point to another."""

    directory: PurePosixPath
    """As the consumer mounts it."""
    names: Mapping[str, str] = field(default_factory=dict)
    """File names the operator changed, by their usual name."""

    def name(self, file: str) -> str:
        """The file's name in the directory."""
        return self.names.get(file, file)

    def path(self, file: str) -> str:
        """The file's absolute path as the consumer sees it."""
        return str(self.directory / self.name(file))


class Credential(Protocol):
    """What a provider gives for a token. It renders itself and knows its own clock."""

    @property
    def issued_at(self) -> datetime | None:
        """When it was issued, UTC; None where nothing was exchanged and the token's clock is the only one."""

    @property
    def expires_at(self) -> datetime | None:
        """When it stops working, UTC; None as above."""

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        """Files for the consumer by their usual name: `credentialsFile`, `credentials`, `config`."""

    def document(self) -> Mapping[str, Any]:
        """What the provider's metadata dialects answer with; Secrets where secret, aware datetimes for times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A token and a credential that an identity holds at one moment, each with its own times."""

    key: Key
    digest: str
    """Of every setting that shaped it; a grant of another digest is another identity's."""
    token: IdentityToken | None
    """None where the source is the pod's own identity."""
    credential: Credential
    generation: int = 0
    """Counts up in the store; 0 before it got there."""

    @property
    def until(self) -> datetime | None:
        """When the first of its two things stops working, UTC; None where neither says."""
        ends = (self.token.expires_at if self.token else None, self.credential.expires_at)
        return min((end for end in ends if end), default=None)


@dataclass(frozen=True, slots=True)
class Location:
    """A place that a sink writes to."""

    kind: str
    """Of the sink: `files`."""
    place: str
    """As that kind of sink names it: an absolute path."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The grant that a sink holds for the workload, as read back from its location."""

    generation: int
    """Of the grant; 0 if an earlier process delivered it."""
    token_issued_at: datetime | None
    token_expires_at: datetime | None
    credential_issued_at: datetime | None
    credential_expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorDelivery:
    """Files of an earlier process that the sink has checked: the identity's, complete, unaltered, written by the agent."""

    token: Secret | None
    files: Mapping[str, Secret]
    """By their usual name."""
    delivery: Delivery


class Source(Protocol):
    """Fetches identity tokens."""

    @property
    def host(self) -> str:
        """The host that a fetch asks, for its limit of requests; empty if nothing is sent. Counts if the provider sends nothing."""

    async def fetch(self, audiences: Sequence[str]) -> IdentityToken | None:
        """A token for these audiences, or None where the identity is the pod's own.

        Raises NotReady, Unavailable or Rejected, never with a token in the text.
        """

    async def changed(self) -> None:
        """Return when a fetch may bring something new before the schedule says so; never, for most sources."""


class Provider(Protocol):
    """Exchanges tokens for credentials, for one cloud."""

    @property
    def audiences(self) -> Sequence[str]:
        """The audiences that the token must have."""

    @property
    def host(self) -> str:
        """The security token service that an exchange asks, for its limit of requests; empty if nothing is sent."""

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> Credential:
        """A credential for this token; None means the pod's own identity.

        Raises NotReady, Unavailable or Rejected, never with a secret in the text.
        """

    def restore(self, prior: PriorDelivery) -> Credential | None:
        """The credential that these files hold, or None where they do not hold one. No network."""


@runtime_checkable
class Prepares(Protocol):
    """A provider that has to learn something where it runs before it can say whom the token is for."""

    async def prepare(self) -> None:
        """Learns it, if it has not yet. Raises NotReady, Unavailable or Rejected."""


@runtime_checkable
class Signs(Protocol):
    """A source that signs its own tokens, and so knows which of them still verify."""

    def confirm(self, token: IdentityToken) -> None:
        """Raise Rejected where no published key belongs to this token."""


class Sink(Protocol):
    """Writes grants for the workload. A reader sees a whole grant or none.

    Each method but `close` may raise NotReady, Unavailable or Rejected.
    """

    @property
    def name(self) -> str:
        """The sink's name for people; from the configuration, so that it can be a label."""

    @property
    def location(self) -> Location:
        """The place it writes to. Known before the first write; no I/O."""

    async def write(self, grant: Grant) -> None:
        """Replace the grant that is stored there."""

    async def read(self) -> Delivery | None:
        """Return the grant that is stored there, or None if no usable one is. Repairs changed links and modes."""

    async def adopt(self) -> PriorDelivery | None:
        """Return the grant that an earlier process left, or None unless every check of it passes."""

    async def withdraw(self) -> None:
        """Remove every grant that this sink, or an earlier process for the same identity, wrote."""

    async def close(self) -> None:
        """Release the location and leave the grants there."""


@runtime_checkable
class KeepsSecrets(Protocol):
    """A sink that also stores small secrets beside its grants: the authorization of the metadata endpoint.

    Each method may raise NotReady, Unavailable or Rejected.
    """

    async def recall(self, name: str) -> Secret | None:
        """Return the secret that an earlier process retained under this name, or None if others could have written it."""

    async def retain(self, name: str, text: Secret) -> None:
        """Store the secret now and with each grant, until `withdraw_all`; `withdraw` leaves it."""

    async def withdraw_all(self) -> None:
        """Remove the grants, as `withdraw` does, and the secrets."""
