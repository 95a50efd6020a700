"""One row per metadata dialect, and how long credentials must stay valid for the clients that read them.

The exact behaviour of each dialect is in `serving/dialects/`. A row's name is also the dialect's name in the configuration and in metrics.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from agent.schedule import MARGIN_SHARE

DialectName = Literal["container", "imds", "gce", "appservice", "azure-imds", "uri", "ecs"]
"""The type checker and the configuration's JSON Schema need the names as a literal; `DIALECTS` has the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The facts of one dialect that other packages need."""

    provider: str
    """Type of the only provider whose credentials the dialect can serve."""
    margin: float
    """Seconds of validity that the dialect's clients need in a credential that they receive."""
    timeout: float
    """Seconds that the endpoint holds a request while the first credential is on its way: less than every client of the dialect waits."""
    prefix: str = ""
    """First part of the paths that name the identity. Without one, clients use well-known paths only, and the identity needs a port or is
    the default."""
    authorized: bool = False
    """Whether clients send the identity's authorization; if not, every process that reaches the address is served."""
    rooted: bool = True
    """Whether the dialect has well-known paths. An identity's own port answers them, and the main listener for the default identity."""

    @property
    def named(self) -> bool:
        """Whether a path can name the identity."""
        return bool(self.prefix)


DIALECTS: Mapping[str, Traits] = MappingProxyType(
    {
        # margin: botocore requests a credential on every call from 15 min before expiry, and from 10 min on each call waits for it
        "container": Traits(provider="aws", margin=20 * 60.0, timeout=1.8, prefix="aws", authorized=True, rooted=False),
        # margin: botocore uses its own expiry of up to 20 min if it receives an earlier one, and so uses expired credentials
        "imds": Traits(provider="aws", margin=25 * 60.0, timeout=0.9, prefix="aws"),
        # margin: google-auth requests another token from 3 min 45 s before expiry, Node's library from 5 min
        "gce": Traits(provider="gcp", margin=5 * 60.0, timeout=2.5),
        # margin of both of Azure's: azure-identity needs more than 5 min
        "appservice": Traits(provider="azure", margin=10 * 60.0, timeout=2.5, prefix="azure", authorized=True, rooted=False),
        "azure-imds": Traits(provider="azure", margin=10 * 60.0, timeout=2.5),
        # margin: Alibaba's SDKs request another credential from 15 min before expiry
        "uri": Traits(provider="alibaba", margin=20 * 60.0, timeout=4.5, prefix="alibaba", authorized=True, rooted=False),
        # margin: Alibaba's SDK for Node requests another credential from 60 min before expiry
        "ecs": Traits(provider="alibaba", margin=65 * 60.0, timeout=0.9),
    }
)
"""By the dialect's name in the configuration."""
ECS_HOST, ECS_PORT = "100.100.100.200", 80
"""The address of Alibaba Cloud's metadata service: its SDKs ask no other in the dialect `ecs`."""
METADATA_ADDRESSES = (
    "169.254.169.254",  # AWS, GCP, Azure
    "169.254.170.2",  # ECS
    "169.254.170.23",  # EKS Pod Identity
    "169.254.169.252",  # GKE
    "fd00:ec2::23",  # EKS Pod Identity
    "fd00:ec2::254",  # AWS
    "fd20:ce::254",  # GCP
    ECS_HOST,  # Alibaba Cloud
)
"""The clouds' own metadata addresses, which no other machine reaches."""
AZURE_TOKEN_FILE_SECONDS = 10 * 60.0
"""azure-identity's WorkloadIdentityCredential reads the token file and uses the token for this long."""


def credential_margin(dialects: Iterable[str]) -> float:
    """Return the seconds of validity that the most demanding dialect needs; 0 if the credential is only written to files."""
    return max((DIALECTS[dialect].margin for dialect in dialects if dialect in DIALECTS), default=0.0)


def token_margin(provider: str, *, written: bool) -> float:
    """Return the seconds of validity that readers of the identity token need: Azure's SDKs, if a sink writes it.

    `provider` is the type in the configuration.
    """
    return AZURE_TOKEN_FILE_SECONDS if provider == "azure" and written else 0.0


def shortest(margin: float) -> float:
    """Return the shortest lifetime in seconds that may be configured with a margin, which would consume a shorter one."""
    return margin / MARGIN_SHARE
