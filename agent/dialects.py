"""What is known of each metadata dialect before anybody speaks it: whose credentials it hands out, to whom, and by which path.

The exact behaviour of each is in `serving/`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent.schedule import MARGIN_SHARE


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


MARGINS: Mapping[str, float] = MappingProxyType(
    {
        "container": 20 * 60.0,  # botocore asks on every call from 15 min before expiry, and from 10 min on each call waits for it
        "imds": 25 * 60.0,  # botocore believes its own expiry of up to 20 min where it is told of less, and so uses what is dead
        "gce": 5 * 60.0,  # google-auth asks again from 3 min 45 s before expiry, Node's from 5 min
        "appservice": 10 * 60.0,  # azure-identity wants more than 5 min
        "azure-imds": 10 * 60.0,  # the same
        "uri": 20 * 60.0,  # Alibaba's SDKs ask again from 15 min before expiry
        "ecs": 65 * 60.0,  # Alibaba's SDK for Node asks again from 60 min before expiry
    }
)
"""Seconds that must be left of a credential, by the dialect it is served in; who is not named here wants none."""
AZURE_TOKEN_FILE = 10 * 60.0
"""Seconds: azure-identity's WorkloadIdentityCredential reads the token file and uses what it read for so long."""


def credential_margin(dialects: Iterable[str]) -> float:
    """Seconds of a credential that the most demanding dialect wants left; 0 where it is only written to files."""
    return max((MARGINS.get(dialect, 0.0) for dialect in dialects), default=0.0)


def token_margin(provider: str, *, written: bool) -> float:
    """Seconds of an identity token that its readers want left: Azure's SDKs, where it is written to any sink.

    `provider` is the type in the configuration.
    """
    return AZURE_TOKEN_FILE if provider == "azure" and written else 0.0


def shortest(margin: float) -> float:
    """Seconds: the shortest lifetime that may be configured beside a margin, for one shorter would be eaten by it."""
    return margin / MARGIN_SHARE
