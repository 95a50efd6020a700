"""The principal of a ServiceAccount, read from the annotations that the clouds' own webhooks read.

Annotations belong to the tenant. The agent checks them by the same patterns as the configuration. They can name a principal, and
never the place that a token is sent to: endpoints, proxies and CAs come from the operator's configuration alone.
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

MAX_SHOWN_CHARACTERS = 200
"""Characters of a refused annotation that messages repeat."""
MAX_ANNOTATION_CHARACTERS = 2048
"""The longest name of a principal."""


@dataclass(frozen=True, slots=True)
class ObservedServiceAccount:
    """A ServiceAccount as it was seen last."""

    uid: str
    """Another one of the same name has another."""
    annotations: Mapping[str, str]


def followed(identity: Identity) -> ServiceAccount | None:
    """Return the ServiceAccount whose annotations name the principal; None if the configuration names it."""
    if identity.provider.annotations() and isinstance(identity.source, KubernetesSettings):
        return identity.source.service_account
    return None


def account_of(identity: Identity) -> ServiceAccount | None:
    """Return the ServiceAccount whose token the identity has, whether its annotations name the principal or not."""
    return identity.source.service_account if isinstance(identity.source, KubernetesSettings) else None


def named(found: Mapping[str, Any], account: ServiceAccount) -> bool:
    """Return whether the object has this ServiceAccount's exact name."""
    return (text_at(found, "metadata", "namespace"), text_at(found, "metadata", "name")) == (account.namespace, account.name)


def sighted(found: Mapping[str, Any], account: ServiceAccount) -> ObservedServiceAccount | None:
    """Return the object as an observation of this ServiceAccount; None if it is another, or is being deleted."""
    metadata = found.get("metadata")
    if not isinstance(metadata, dict) or not named(found, account):
        return None
    if not text_at(metadata, "uid") or metadata.get("deletionTimestamp"):
        return None
    annotations = metadata.get("annotations")
    pairs = annotations.items() if isinstance(annotations, dict) else ()
    return ObservedServiceAccount(text_at(metadata, "uid"), {key: value for key, value in pairs if isinstance(value, str)})


def effective(identity: Identity, last_observed: ObservedServiceAccount) -> Identity:
    """Return the identity with the values of the annotations in place of configured or missing ones.

    Raises Rejected, naming the annotation, if one is missing, does not match the pattern of its setting, or contradicts the rest.
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
        remedy=f"kubectl annotate --overwrite serviceaccount {_flags(identity)} {annotation}=…, in the form that provider requires",
    )
    if len(text) > MAX_ANNOTATION_CHARACTERS or not text.isascii() or not text.isprintable():
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
    """Return text that can neither fill a log nor control a terminal."""
    if len(text) > MAX_SHOWN_CHARACTERS or not text.isprintable() or not text.isascii():
        return f"{len(text)} characters that are not shown"
    return repr(text) if "'" not in text and " " not in text else text
