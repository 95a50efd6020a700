"""Decides from the configuration, before any token is requested, which ServiceAccounts the identities may be.

Follows the tenant lockdown of Flux (RFC-0010 and `fluxcd/pkg/auth`) and closes its gaps: names are compared whole,
and a name without its namespace matches nothing.
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
SHOWN_SUBJECT_CHARACTERS = 255
"""Of a token's subject, in a message."""
Refusal = tuple[tuple[str, ...], str]
"""The place below the identity, and the reason."""


def inconsistencies(tenancy: Tenancy) -> Iterator[tuple[str, str]]:
    """Yield each key of the block that contradicts another, and the reason."""
    if not tenancy.object_level:
        for key, value in (
            ("namespaces", tenancy.namespaces is not None),
            ("defaultServiceAccount", tenancy.default_service_account is not None),
            ("requireServiceAccount", tenancy.require_service_account),
        ):
            if value:
                yield key, "has no effect with objectLevel: false, which forbids every ServiceAccount: remove one of the two"
    if tenancy.namespaces == ():
        yield "namespaces", "the list is empty, so no ServiceAccount is allowed: name namespaces, or write objectLevel: false"


def incomplete(identity: Identity, tenancy: Tenancy) -> Iterator[Refusal]:
    """Yield the settings that an identity leaves to the block, and that the block does not have."""
    source = identity.source
    if isinstance(source, KubernetesSettings) and not source.service_account.name and tenancy.default_service_account is None:
        yield ("source", "serviceAccount", "name"), "missing: write it, or set tenancy.defaultServiceAccount for all identities without one"


def refusals(identity: Identity, tenancy: Tenancy) -> Iterator[Refusal]:
    """Yield the reasons why the block forbids an identity."""
    source = identity.source
    if isinstance(source, KubernetesSettings):
        account = source.service_account
        if not tenancy.object_level:
            yield ("source", "type"), "tenancy.objectLevel is false, which forbids ServiceAccounts: use another source"
        yield from _beyond(account.namespace, tenancy, ("source", "serviceAccount", "namespace"))
        return
    if tenancy.require_service_account:
        yield (
            ("source", "type"),
            "tenancy.requireServiceAccount is true: use source kubernetes, which alone proves that the ServiceAccount exists",
        )
    if isinstance(source, IssuerSettings) and (reason := foreign(source.subject, tenancy)):
        yield ("source", "subject"), reason


def forbidden(identity: Identity, tenancy: Tenancy) -> str:
    """Return in one line why an identity may not run; empty if it may. For source `file` only its tokens decide."""
    return "; ".join(f"{'.'.join(place)}: {reason}" for place, reason in refusals(identity, tenancy))


def foreign(subject: str, tenancy: Tenancy) -> str:
    """Return why a token's subject does not belong to an allowed tenant; empty if it does. Names are compared whole."""
    if tenancy.namespaces is None:
        return ""
    parts = re.fullmatch(r"system:serviceaccount:([^:]+):([^:]+)", subject)
    if parts is None:
        return f"the subject is not a ServiceAccount, and tenancy.namespaces is set: write {SUBJECT}NAMESPACE:NAME"
    return next((reason for _, reason in _beyond(parts[1], tenancy, ())), "")


class TenantSource:
    """A source that refuses tokens of a tenant that is not allowed; only the tokens name their tenant."""

    def __init__(self, source: Source, identity: str, tenancy: Tenancy) -> None:
        self._source = source
        self._identity = identity
        self._tenancy = tenancy

    @property
    def host(self) -> str:
        return self._source.host

    async def fetch(self, audiences: Sequence[str]) -> IdentityToken | None:
        """Return the source's token. Raises Ended if it belongs to another tenant."""
        token = await self._source.fetch(audiences)
        if token and (reason := foreign(token.subject, self._tenancy)):
            remedy = "write the token of another ServiceAccount to the file, or allow its namespace in `tenancy`"
            raise Ended(
                f"{self._identity}: the token of {plain(token.subject)[:SHOWN_SUBJECT_CHARACTERS]!r} is refused: {reason}", remedy=remedy
            )
        return token

    async def changed(self) -> None:
        await self._source.changed()


def resolved(config: Config) -> Config:
    """Return the configuration with the default ServiceAccount in each identity that names none."""
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
