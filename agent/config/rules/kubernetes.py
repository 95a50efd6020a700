"""Rules about ServiceAccounts and their tokens."""

from collections.abc import Iterator

from agent.config.fault import Finding
from agent.config.model import Config
from agent.sources.kubernetes import MAX_LIFETIME_SECONDS, MIN_LIFETIME_SECONDS, KubernetesSettings


def lifetimes(config: Config) -> Iterator[Finding]:
    """Refuse a lifetime that an API server does not grant."""
    for index, identity in enumerate(config.identities):
        if (
            isinstance(identity.source, KubernetesSettings)
            and not MIN_LIFETIME_SECONDS <= identity.source.lifetime.seconds <= MAX_LIFETIME_SECONDS
        ):
            message = f"an API server does not grant {identity.source.lifetime}: write 10m to {MAX_LIFETIME_SECONDS} seconds"
            yield Finding(place=("identities", index, "source", "lifetime"), message=message)


def defaulted(config: Config) -> Iterator[Finding]:
    """Warn of a principal that applies once a tenant removes the annotation."""
    for index, identity in enumerate(config.identities):
        provider = identity.provider
        if provider.annotations() and provider.configured_principal:
            message = (
                "applies if the ServiceAccount lacks the annotation (fromServiceAccount), so a tenant becomes this principal by"
                " removing its annotation: leave the key out, unless that is meant"
            )
            place = ("identities", index, "provider", provider.principal_key)
            yield Finding(place=place, message=message, warning=True, other=("identities", index, "provider", "fromServiceAccount"))


RULES = (lifetimes, defaulted)
