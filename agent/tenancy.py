"""Which ServiceAccounts the identities may be: decided from the configuration, before any token is asked for.

As Flux locks its tenants down (RFC-0010 and `fluxcd/pkg/auth`), with what it leaves open closed: names are compared whole,
and a name without its namespace is nobody's.
"""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from agent.config import Config, Identity, Tenancy
from agent.sources.kubernetes import DefaultServiceAccount, KubernetesSettings

SUBJECT = "system:serviceaccount:"
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


def refusals(identity: Identity, tenancy: Tenancy) -> Iterator[Refusal]:
    """Why an identity may not be what it wants to be."""
    source = identity.source
    if isinstance(source, KubernetesSettings):
        account = source.service_account
        if not tenancy.object_level:
            yield ("source", "type"), "tenancy.objectLevel is false: no identity may be a ServiceAccount's"
        if not account.name and tenancy.default_service_account is None:
            yield ("source", "serviceAccount", "name"), "missing: write it, or tenancy.defaultServiceAccount for all that have none"
        yield from _beyond(account.namespace, tenancy, ("source", "serviceAccount", "namespace"))
        return
    if tenancy.require_service_account:
        yield ("source", "type"), "tenancy.requireServiceAccount is true: only source kubernetes shows that the ServiceAccount is there"
    subject = getattr(source, "subject", "")
    if tenancy.namespaces is not None and subject.startswith(SUBJECT):
        parts = re.fullmatch(r"([^:]+):([^:]+)", subject.removeprefix(SUBJECT))
        if parts is None:
            yield ("source", "subject"), f"no ServiceAccount's: write {SUBJECT}NAMESPACE:NAME"
        else:
            yield from _beyond(parts[1], tenancy, ("source", "subject"))


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
        yield place, f"{namespace} is none of tenancy.namespaces ({', '.join(tenancy.namespaces) or 'none'})"
