"""Rules about ServiceAccounts and their tokens."""

from collections.abc import Iterator

from agent import providers
from agent.config.fault import Finding
from agent.config.model import Config
from agent.sources.kubernetes import LONGEST, SHORTEST, KubernetesSettings

PRINCIPALS = {"roleArn", "clientId", "serviceAccount"}
"""Keys of a provider that say as whom the workload acts; the others say where."""


def lifetimes(config: Config) -> Iterator[Finding]:
    """Within what an API server takes."""
    for index, identity in enumerate(config.identities):
        if isinstance(identity.source, KubernetesSettings) and not SHORTEST <= identity.source.lifetime.seconds <= LONGEST:
            message = f"{identity.source.lifetime}: an API server grants 10m and longer, and takes no more than {LONGEST} seconds"
            yield Finding(place=("identities", index, "source", "lifetime"), message=message)


def defaulted(config: Config) -> Iterator[Finding]:
    """An annotation that is removed leaves the principal that the configuration names."""
    for index, identity in enumerate(config.identities):
        keys = set(providers.annotations(identity.provider).values()) & PRINCIPALS
        names = zip(identity.provider.__struct_encode_fields__, identity.provider.__struct_fields__, strict=True)
        for key, field in names:
            if key in keys and getattr(identity.provider, field):
                message = (
                    "taken for a ServiceAccount without the annotation (fromServiceAccount), so a tenant becomes it by removing its own:"
                    " leave it out, unless that is meant"
                )
                place = ("identities", index, "provider", key)
                yield Finding(place=place, message=message, warning=True, other=("identities", index, "provider", "fromServiceAccount"))


RULES = (lifetimes, defaulted)
