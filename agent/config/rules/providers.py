"""Rules that only the provider knows: what its own settings may be beside each other."""

import re
from collections.abc import Iterator

from agent import providers
from agent.config.fault import Finding, Place
from agent.config.model import Config

STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
"""Of a field as providers name it: `chain[0].transitiveTags`."""


def settled(config: Config) -> Iterator[Finding]:
    """What each provider finds wrong between its settings."""
    for index, identity in enumerate(config.identities):
        block: Place = ("identities", index, "provider")
        for field, message in providers.faults(identity.provider):
            steps = tuple(name or int(number) for name, number in STEP.findall(field))
            yield Finding(place=(*block, *steps), message=message, rests_on=(block,))


RULES = (settled,)
