"""Rules about ServiceAccounts and their tokens."""

from collections.abc import Iterator

from agent import providers
from agent.config.fault import Finding
from agent.config.model import Config
from agent.sources.kubernetes import LONGEST, SHORTEST, KubernetesSettings

PRINCIPALS = {"roleArn", "clientId", "serviceAccount"}
"""Keys of a provider that name the principal that the workload acts as; the others name places."""


def lifetimes(config: Config) -> Iterator[Finding]:
    """Refuse a lifetime that an API server does not grant."""
    for index, identity in enumerate(config.identities):
        if isinstance(identity.source, KubernetesSettings) and not SHORTEST <= identity.source.lifetime.seconds <= LONGEST:
            message = f"an API server does not grant {identity.source.lifetime}: write 10m to {LONGEST} seconds"
            yield Finding(place=("identities", index, "source", "lifetime"), message=message)


def defaulted(config: Config) -> Iterator[Finding]:
    """Warn of a principal that applies once a tenant removes the annotation."""
    for index, identity in enumerate(config.identities):
        keys = set(providers.annotations(identity.provider).values()) & PRINCIPALS
        names = zip(identity.provider.__struct_encode_fields__, identity.provider.__struct_fields__, strict=True)
        for key, field in names:
            if key in keys and getattr(identity.provider, field):
                message = (
                    "applies if the ServiceAccount lacks the annotation (fromServiceAccount), so a tenant becomes this principal by"
                    " removing its annotation: leave the key out, unless that is meant"
                )
                place = ("identities", index, "provider", key)
                yield Finding(place=place, message=message, warning=True, other=("identities", index, "provider", "fromServiceAccount"))


RULES = (lifetimes, defaulted)
