"""Rules about ServiceAccounts and their tokens."""

from collections.abc import Iterator

from agent.config import Config
from agent.reading.fault import Finding
from agent.sources.kubernetes import LONGEST, SHORTEST, KubernetesSettings


def lifetimes(config: Config) -> Iterator[Finding]:
    """Within what an API server takes."""
    for index, identity in enumerate(config.identities):
        if isinstance(identity.source, KubernetesSettings) and not SHORTEST <= identity.source.lifetime.seconds <= LONGEST:
            message = f"{identity.source.lifetime}: an API server grants 10m and longer, and takes no more than {LONGEST} seconds"
            yield Finding(place=("identities", index, "source", "lifetime"), message=message)


RULES = (lifetimes,)
