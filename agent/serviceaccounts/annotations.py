"""Whose identity a ServiceAccount is: read from the annotations that the clouds' own webhooks read.

They belong to the tenant, so they are judged as the configuration is, by the same patterns, and can say who an identity is,
and never where a token is sent: endpoints, proxies and CAs come from the operator's configuration alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import fields, replace

from agent.config.model import Identity
from agent.errors import Rejected
from agent.kube.client import text_at
from agent.providers import ProviderSettings
from agent.settings import convert
from agent.sources.kubernetes import KubernetesSettings, ServiceAccount

LONGEST_SHOWN = 200
"""Characters of an annotation that is repeated to whoever is told that it is refused."""
LONGEST = 2048
"""Characters of an annotation that is looked at: the longest name of a principal."""


@dataclass(frozen=True, slots=True)
class ObservedServiceAccount:
    """A ServiceAccount as it was seen last."""

    uid: str
    """Another one of the same name has another."""
    annotations: Mapping[str, str]


def followed(identity: Identity) -> ServiceAccount | None:
    """The ServiceAccount whose annotations say who the identity is; None for an identity that the configuration names."""
    if identity.provider.annotations() and isinstance(identity.source, KubernetesSettings):
        return identity.source.service_account
    return None


def account_of(identity: Identity) -> ServiceAccount | None:
    """Return the ServiceAccount whose token the identity has, whether its annotations name the principal or not."""
    return identity.source.service_account if isinstance(identity.source, KubernetesSettings) else None


def named(found: Mapping[str, Any], account: ServiceAccount) -> bool:
    """Whether the object is called like this ServiceAccount, to the letter."""
    return (text_at(found, "metadata", "namespace"), text_at(found, "metadata", "name")) == (account.namespace, account.name)


def sighted(found: Mapping[str, Any], account: ServiceAccount) -> ObservedServiceAccount | None:
    """The object as a sighting of this ServiceAccount; None where it is another, or on its way out."""
    metadata = found.get("metadata")
    if not isinstance(metadata, dict) or not named(found, account):
        return None
    if not text_at(metadata, "uid") or metadata.get("deletionTimestamp"):
        return None
    annotations = metadata.get("annotations")
    pairs = annotations.items() if isinstance(annotations, dict) else ()
    return ObservedServiceAccount(text_at(metadata, "uid"), {key: value for key, value in pairs if isinstance(value, str)})


def effective(identity: Identity, last_observed: ObservedServiceAccount) -> Identity:
    """The identity with what the annotations say in the place of what the configuration says or leaves open.

    Raises Rejected, naming the annotation: where one is missing, is not of the form that the configuration would have to
    be, or does not go with the rest.
    """
    settings = identity.provider
    wanted = settings.annotations()
    said = {annotation: text for annotation in wanted if (text := last_observed.annotations.get(annotation))}
    names = {field.encode_name: field.name for field in fields(settings)}
    kinds = get_type_hints(type(settings), include_extras=True)
    values = {
        names[wanted[annotation]]: _value(identity, annotation, text, kinds[names[wanted[annotation]]]) for annotation, text in said.items()
    }
    found: ProviderSettings = replace(settings, **values, from_service_account=False)
    for field, message in found.faults():
        annotation = next((one for one, key in wanted.items() if key == field), "")
        if annotation and annotation not in said:
            raise Rejected(
                f"{_whose(identity)} has no annotation {annotation}",
                remedy=f"kubectl annotate serviceaccount {_flags(identity)} {annotation}=…, or set provider.{field}",
            )
        raise Rejected(
            f"{_whose(identity)}: with its annotations, provider.{field} {_shown(message)}",
            remedy=f"correct {' and '.join(said) or 'the configuration'}",
        )
    return replace(identity, provider=found)


def _value(identity: Identity, annotation: str, text: str, kind: Any) -> Any:
    fault = Rejected(
        f"{_whose(identity)}: its annotation {annotation} cannot be used: {_shown(text)}",
        remedy=f"kubectl annotate --overwrite serviceaccount {_flags(identity)} {annotation}=…, of the form that provider takes it in",
    )
    if len(text) > LONGEST or not text.isascii() or not text.isprintable():
        raise fault
    try:
        return convert(identity.provider.annotated(text), kind)
    except msgspec.ValidationError:
        raise fault from None


def _whose(identity: Identity) -> str:
    account = followed(identity)
    return f"{identity.name}: ServiceAccount {account.namespace}/{account.name}" if account else identity.name


def _flags(identity: Identity) -> str:
    account = followed(identity)
    return f"-n {account.namespace} {account.name}" if account else ""


def _shown(text: str) -> str:
    """Nothing that could fill a log or steer a terminal."""
    if len(text) > LONGEST_SHOWN or not text.isprintable() or not text.isascii():
        return f"{len(text)} characters that are not shown"
    return repr(text) if "'" not in text and " " not in text else text
