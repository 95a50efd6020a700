"""Rules that only the provider knows: which of its settings fit each other."""

import re
from collections.abc import Iterator

from agent.config.fault import Finding, Place
from agent.config.model import Config

STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
"""One step of a field's path as providers write it: `chain[0].transitiveTags`."""


def settled(config: Config) -> Iterator[Finding]:
    """Refuse settings that their provider finds contradictory."""
    for index, identity in enumerate(config.identities):
        block: Place = ("identities", index, "provider")
        for field, message in identity.provider.faults():
            steps = tuple(name or int(number) for name, number in STEP.findall(field))
            yield Finding(place=(*block, *steps), message=message, rests_on=(block,))


RULES = (settled,)
