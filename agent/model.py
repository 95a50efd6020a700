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

    __hash__ = None  # type: ignore[assignment]  # a secret is no key

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
    """What an identity holds at one moment: a token and a credential, each with its own clock."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a sink holds for the workload, read back from where it lies."""

    generation: int
    """Of the grant it carries; 0 where it was delivered before this process began."""
    token_issued_at: datetime | None
    token_expires_at: datetime | None
    credential_issued_at: datetime | None
    credential_expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorDelivery:
    """What a sink holds from before a restart and vouches for: this identity's, complete, unaltered, the agent's own."""

    token: Secret | None
    files: Mapping[str, Secret]
    """By their usual name."""
    delivery: Delivery


class Source(Protocol):
    """Gives identity tokens."""

    @property
    def host(self) -> str:
        """Whose patience a fetch draws on; empty where nothing is sent. It counts where the provider sends nothing."""

    async def fetch(self, audiences: Sequence[str]) -> IdentityToken | None:
        """A token for these audiences, or None where the identity is the pod's own.

        Raises NotReady, Unavailable or Rejected, never with a token in the text.
        """

    async def changed(self) -> None:
        """Returns when a fetch may bring something new before the clock says so. For most sources, never."""


class Provider(Protocol):
    """Gives credentials for tokens; all that is known of one cloud."""

    @property
    def audiences(self) -> Sequence[str]:
        """Whom the token has to be for."""

    @property
    def host(self) -> str:
        """The security token service whose patience an exchange draws on; empty where nothing is sent."""

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
    """Takes grants to where the workload looks. Whole or not at all: no reader ever sees a part of one."""

    @property
    def name(self) -> str:
        """The place, as a person would name it; from the configuration, so it can be a label."""

    async def write(self, grant: Grant) -> None:
        """Replaces what is there. Raises NotReady, Unavailable or Rejected."""

    async def read(self) -> Delivery | None:
        """What is there now, repaired where only links or modes had drifted; None where nothing usable is.

        Raises NotReady, Unavailable or Rejected.
        """

    async def adopt(self) -> PriorDelivery | None:
        """What an earlier process left, if every check of it holds; None otherwise."""

    async def recall(self, name: str) -> Secret | None:
        """What an earlier process retained under this name, if nobody else could have written it."""

    async def retain(self, name: str, text: Secret) -> None:
        """Keeps a small secret beside the grants from now on, at once if that can be."""

    async def withdraw(self, *, retained: bool = True) -> None:
        """Takes away everything this sink wrote: the identity is gone. False leaves what it retains: it is expected back."""

    async def close(self) -> None:
        """Lets go of the place, leaving what was written."""
