"""Which ServiceAccounts the identities may be: decided from the configuration, before any token is asked for.

As Flux locks its tenants down (RFC-0010 and `fluxcd/pkg/auth`), with what it leaves open closed: names are compared whole,
and a name without its namespace is nobody's.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from agent.config.model import Config, Identity, Tenancy
from agent.errors import Ended
from agent.model import IdentityToken, Source
from agent.sanitize import plain
from agent.sources.issuer import IssuerSettings
from agent.sources.kubernetes import DefaultServiceAccount, KubernetesSettings

SUBJECT = "system:serviceaccount:"
SHOWN_CHARACTERS = 255
"""Of a token's subject, in a message."""
Refusal = tuple[tuple[str, ...], str]
"""Where below the identity, and why."""


def inconsistencies(tenancy: Tenancy) -> Iterator[tuple[str, str]]:
    """What of the block contradicts itself: the key, and why."""
    if not tenancy.object_level:
        for key, value in (
            ("namespaces", tenancy.namespaces is not None),
            ("defaultServiceAccount", tenancy.default_service_account is not None),
            ("requireServiceAccount", tenancy.require_service_account),
        ):
            if value:
                yield key, "means nothing with objectLevel: false, where no identity is a ServiceAccount's: leave one of the two out"
    if tenancy.namespaces == ():
        yield "namespaces", "empty, so that no ServiceAccount is allowed: name them, or write objectLevel: false"


def incomplete(identity: Identity, tenancy: Tenancy) -> Iterator[Refusal]:
    """What an identity leaves to the block, which does not say it either."""
    source = identity.source
    if isinstance(source, KubernetesSettings) and not source.service_account.name and tenancy.default_service_account is None:
        yield ("source", "serviceAccount", "name"), "missing: write it, or tenancy.defaultServiceAccount for all that have none"


def refusals(identity: Identity, tenancy: Tenancy) -> Iterator[Refusal]:
    """Why an identity may not be what it wants to be."""
    source = identity.source
    if isinstance(source, KubernetesSettings):
        account = source.service_account
        if not tenancy.object_level:
            yield ("source", "type"), "tenancy.objectLevel is false: no identity may be a ServiceAccount's"
        yield from _beyond(account.namespace, tenancy, ("source", "serviceAccount", "namespace"))
        return
    if tenancy.require_service_account:
        yield ("source", "type"), "tenancy.requireServiceAccount is true: only source kubernetes shows that the ServiceAccount is there"
    if isinstance(source, IssuerSettings) and (reason := foreign(source.subject, tenancy)):
        yield ("source", "subject"), reason


def forbidden(identity: Identity, tenancy: Tenancy) -> str:
    """Return why an identity may not run, at a glance; empty if it may. Of source `file` only its tokens say."""
    return "; ".join(f"{'.'.join(place)}: {reason}" for place, reason in refusals(identity, tenancy))


def foreign(subject: str, tenancy: Tenancy) -> str:
    """Return why a token's subject is not of a tenant that is allowed; empty if it is. Names are compared whole."""
    if tenancy.namespaces is None:
        return ""
    parts = re.fullmatch(r"system:serviceaccount:([^:]+):([^:]+)", subject)
    if parts is None:
        return f"the subject is not a ServiceAccount's, and tenancy.namespaces is set: write {SUBJECT}NAMESPACE:NAME"
    return next((reason for _, reason in _beyond(parts[1], tenancy, ())), "")


class TenantSource:
    """A source whose tokens have to be of an allowed tenant: only they say of which they are."""

    def __init__(self, source: Source, identity: str, tenancy: Tenancy) -> None:
        self._source = source
        self._identity = identity
        self._tenancy = tenancy

    @property
    def host(self) -> str:
        return self._source.host

    async def fetch(self, audiences: Sequence[str]) -> IdentityToken | None:
        """As the source does. Raises Ended for another tenant's token."""
        token = await self._source.fetch(audiences)
        if token and (reason := foreign(token.subject, self._tenancy)):
            remedy = "have the token of another ServiceAccount written there, or allow its namespace in `tenancy`"
            raise Ended(f"{self._identity}: the token of {plain(token.subject)[:SHOWN_CHARACTERS]!r} is refused: {reason}", remedy=remedy)
        return token

    async def changed(self) -> None:
        await self._source.changed()


def resolved(config: Config) -> Config:
    """With the default ServiceAccount where an identity names none."""
    name = config.tenancy.default_service_account
    return replace(config, identities=tuple(_named(identity, name) for identity in config.identities)) if name else config


def _named(identity: Identity, name: str) -> Identity:
    source = identity.source
    if not isinstance(source, KubernetesSettings) or source.service_account.name:
        return identity
    return replace(
        identity, source=replace(source, service_account=DefaultServiceAccount(namespace=source.service_account.namespace, name=name))
    )


def _beyond(namespace: str, tenancy: Tenancy, place: tuple[str, ...]) -> Iterator[Refusal]:
    if tenancy.namespaces is not None and namespace not in tenancy.namespaces:
        yield place, f"{namespace} is not in tenancy.namespaces ({', '.join(tenancy.namespaces) or 'none'})"
