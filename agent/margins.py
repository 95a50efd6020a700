"""How much life each consumer wants left in what it is given: with less, its SDK asks again on every call, or gives up.

A thing is replaced before it comes so close to its end. Whom an identity is served to is the configuration's to say.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from agent.schedule import MARGIN_SHARE

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
