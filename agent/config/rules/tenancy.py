"""Rules about the ServiceAccounts that identities may be."""

from collections.abc import Iterator

from agent.config.fault import Finding, Place
from agent.config.model import Config
from agent.config.tenancy import incomplete, inconsistencies, refusals
from agent.sources.kubernetes import KubernetesSettings


def consistent(config: Config) -> Iterator[Finding]:
    """Refuse a block that contradicts itself."""
    place: Place = ("tenancy",)
    for key, message in inconsistencies(config.tenancy):
        yield Finding(place=(*place, key), message=message, rests_on=(place,))


def allowed(config: Config) -> Iterator[Finding]:
    """Refuse each identity that the block does not allow."""
    for index, identity in enumerate(config.identities):
        block: Place = ("identities", index)
        rests_on: tuple[Place, ...] = (("tenancy",), (*block, "source"))
        for steps, message in incomplete(identity, config.tenancy):
            yield Finding(place=(*block, *steps), message=message, rests_on=rests_on)
        for steps, message in refusals(identity, config.tenancy):
            yield Finding(place=(*block, *steps), message=message, rests_on=rests_on, forbids=True)


def annotated(config: Config) -> Iterator[Finding]:
    """Refuse `fromServiceAccount` without source `kubernetes`: only a ServiceAccount has annotations."""
    for index, identity in enumerate(config.identities):
        block: Place = ("identities", index)
        if identity.provider.annotations() and not isinstance(identity.source, KubernetesSettings):
            message = "needs source kubernetes, whose ServiceAccount has the annotations: change the source, or remove this key"
            yield Finding(place=(*block, "provider", "fromServiceAccount"), message=message, rests_on=((*block, "source"),))


RULES = (consistent, allowed, annotated)
