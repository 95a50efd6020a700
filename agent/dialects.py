"""What is known of each metadata dialect before anybody speaks it: whose credentials it hands out, to whom, and by which path.

The exact behaviour of each is in `serving/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Of one dialect."""

    provider: str
    """Type of the only provider whose credentials it can hand out."""
    authorized: bool = False
    """A client has to present the identity's authorization; else every process that reaches the address may ask."""
    named: bool = True
    """A path can name the identity. Where it cannot, clients ask for well-known paths, so the identity needs a port or is the default."""
    rooted: bool = True
    """It has well-known paths, which an identity's own port answers, and the main listener for the default identity."""


DIALECTS: Mapping[str, Traits] = MappingProxyType(
    {
        "container": Traits(provider="aws", authorized=True, rooted=False),
        "imds": Traits(provider="aws"),
        "gce": Traits(provider="gcp", named=False),
        "appservice": Traits(provider="azure", authorized=True, rooted=False),
        "azure-imds": Traits(provider="azure", named=False),
        "uri": Traits(provider="alibaba", authorized=True, rooted=False),
        "ecs": Traits(provider="alibaba", named=False),
    }
)
"""By its name in the configuration."""
