"""The settings of an identity and the general ones, as keepers, couriers and readers need them."""

import re
from collections.abc import Mapping
from typing import Any

from agent.config.model import Config, Identity
from agent.dialects import credential_margin, token_margin
from agent.model import Secret
from agent.record import Profile
from agent.rotation.keeper import KeeperOptions
from agent.schedule import Backoff, Policy
from agent.sources.kubernetes import KubernetesSettings

FILE_AT = 0.9
"""Share of a token's lifetime after which a token file is due: kubelet, or another writer, renews it. Kubelet begins at 0.8
and acts at the pod's next sync, 60 to 90 s later."""


def profile(identity: Identity, config: Config, digest: str, sinks: tuple[str, ...], authorization: Secret | None) -> Profile:
    """Of an identity that runs, whose sinks have these names."""
    own, general = identity.refresh, config.refresh
    at = general.at if own.at is None else own.at
    jitter = general.jitter if own.jitter is None else own.jitter
    max_age = float((own.max_age or general.max_age).seconds)
    bound = own.max_use or general.max_use
    max_use = float(bound.seconds) if bound else None
    exchanged = identity.provider.exchanges
    source, provider = _tag(identity.source), _tag(identity.provider)
    margin = token_margin(provider, written=bool(sinks))
    token = Policy(at=at, jitter=jitter, max_age=max_age, max_use=None if exchanged else max_use, margin=margin)
    if source == "file":
        token = Policy(at=max(at, FILE_AT), jitter=0.0, max_age=max_age)
    return Profile(
        name=identity.name,
        digest=digest,
        source=source,
        provider=provider,
        sinks=sinks,
        variants=tuple(identity.provider.variants()),
        required=identity.required,
        dialects=identity.serve.dialects,
        authorization=authorization,
        default=identity.serve.default,
        facts=facts(identity),
        token_policy=token,
        credential_policy=Policy(at=at, jitter=jitter, max_age=max_age, max_use=max_use, margin=credential_margin(identity.serve.dialects)),
    )


def vacant(identity: Identity, sinks: tuple[str, ...], authorization: Secret | None = None) -> Profile:
    """Return the profile of an identity without a principal: it is known, holds nothing, and serves nothing.

    `authorization`: clients that send it get the reason and `Retry-After`.
    """
    return Profile(
        name=identity.name,
        digest="",
        source=_tag(identity.source),
        provider=_tag(identity.provider),
        sinks=sinks,
        required=identity.required,
        dialects=identity.serve.dialects,
        default=identity.serve.default,
        authorization=authorization,
    )


def keeper_options(identity: Identity, config: Config) -> KeeperOptions:
    """Return the options of its keeper."""
    general = config.refresh
    return KeeperOptions(
        timeout=float((identity.refresh.timeout or general.timeout).seconds),
        backoff=Backoff(initial=float(general.backoff.initial.seconds), max=float(general.backoff.max.seconds)),
        namespace=namespace(identity),
    )


def namespace(identity: Identity) -> str:
    """Return the Kubernetes namespace of the identity, by its ServiceAccount or its subject; empty if there is none."""
    if isinstance(identity.source, KubernetesSettings):
        return identity.source.service_account.namespace
    found = re.fullmatch(r"system:serviceaccount:([^:]+):[^:]+", getattr(identity.source, "subject", ""))
    return found[1] if found else ""


def _tag(settings: Any) -> str:
    return str(settings.__struct_config__.tag)


def facts(identity: Identity) -> Mapping[str, str]:
    """Return the facts that dialects serve, by name, without the unknown ones."""
    found = dict(identity.provider.facts())
    match identity.provider.__struct_config__.tag:
        case "aws":
            own = identity.serve.imds
            given = {"availability-zone": own.availability_zone, "v1": "allowed" if own.v1 else None}
        case "gcp":
            gce = identity.serve.gce
            given = {
                "project-id": gce.project_id,
                "project-number": gce.project_number,
                "zone": gce.zone,
                "universe-domain": gce.universe_domain,
                "cluster-name": gce.cluster_name,
                "cluster-location": gce.cluster_location,
                "email": gce.email,
            }
        case "alibaba":
            ecs = identity.serve.ecs
            given = {"zone": ecs.zone_id, "v1": "allowed" if ecs.v1 else None}
        case _:
            given = {}
    return found | {name: value for name, value in given.items() if value}
