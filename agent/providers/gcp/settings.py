"""What an operator says of an identity in Google Cloud, and what of it cannot be so.

https://cloud.google.com/iam/docs/workload-identity-federation
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from agent.providers.gcp.environment import UNIVERSE
from agent.settings import Address, Duration, Settings, Url
from agent.variants import CLOUD_PLATFORM, MAX_SCOPES, SCOPE_PATTERN

LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
POOL = r"projects/[0-9]{1,30}/locations/global/workloadIdentityPools/[a-z0-9-]{4,32}"
PROVIDER = "the provider's resource name: projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"
ACCOUNT = "a service account's email, such as app@project.iam.gserviceaccount.com"
WorkloadIdentityProvider = Annotated[str, msgspec.Meta(pattern=rf"^{POOL}/providers/[a-z0-9-]{{4,32}}$(?!\n)", description=PROVIDER)]
MADE = rf"{LABEL}@{LABEL}(\.{LABEL})*\.iam"
"""By anybody, also in a project of a domain (`project.example.com`)."""
GIVEN = rf"[0-9]{{1,30}}-compute@developer|{LABEL}(\.{LABEL})*@appspot"
"""The defaults of Compute and of App Engine."""
Email = Annotated[str, msgspec.Meta(pattern=rf"^({MADE}|{GIVEN})\.gserviceaccount\.com$(?!\n)", max_length=254, description=ACCOUNT)]
Scope = Annotated[str, msgspec.Meta(pattern=rf"^{SCOPE_PATTERN}$(?!\n)")]
Domain = Annotated[str, msgspec.Meta(pattern=rf"^{LABEL}(\.{LABEL})+$(?!\n)", max_length=253)]
Project = Annotated[str, msgspec.Meta(pattern=rf"^({LABEL}(\.{LABEL})*:)?{LABEL}$(?!\n)", max_length=253)]
EMAIL = "https://www.googleapis.com/auth/userinfo.email"
ANNOTATIONS = {
    "iam.gke.io/gcp-service-account": "serviceAccount",
    "gcp.auth.fluxcd.io/workload-identity-provider": "workloadIdentityProvider",
}
"""Of a ServiceAccount, by what they set: GKE's own, and Flux's for what GKE has no name for."""
SHORTEST, LONGEST = Duration(600), Duration(43200)
"""What a service account's token may live; above an hour only where a policy of the organisation allows it."""


class GcpSettings(Settings, tag="gcp", tag_field="type"):
    """Which provider of a workload identity pool believes the token, and as whom the workload acts: as itself, or as a service account."""

    workload_identity_provider: WorkloadIdentityProvider | None = None
    gke: bool = False
    """The cluster's own pool; which that is, its metadata server says."""
    service_account: Email | None = None
    from_service_account: bool = False
    """Whether a ServiceAccount's annotations say `serviceAccount` and `workloadIdentityProvider`, where they do."""
    delegates: Annotated[tuple[Email, ...], msgspec.Meta(max_length=8)] = ()
    """From the service account that the identity may act as to the one that may act as `serviceAccount`."""
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(min_length=1, max_length=MAX_SCOPES)] = (CLOUD_PLATFORM, EMAIL)
    scopes_allowed: Annotated[tuple[Scope, ...], msgspec.Meta(max_length=MAX_SCOPES)] | None = None
    """That clients of the endpoint may ask for beside `scopes`; None: any. Empty: no others."""
    lifetime: Duration | None = None
    """Of a service account's token; None leaves it to Google: one hour."""
    universe_domain: Domain = UNIVERSE
    project: Project | None = None
    """For the workload's variables; None: that of the service account, else of the pool."""
    audiences: tuple[str, ...] = ()
    """Of the token, where the pool's provider names allowed audiences; empty: the provider's resource name, which Google takes unasked."""
    exchange: bool = True
    endpoint: Url | None = None
    """None: the security token service of the universe. Scheme and host only, as the next two."""
    iam_endpoint: Url | None = None
    """None: the IAM Service Account Credentials API of the universe."""
    metadata_endpoint: Url | None = None
    """None: GKE's metadata server."""
    ca_file: str | None = None
    proxy: Url | None = None

    @property
    def sts(self) -> Url:
        """Who is asked first."""
        return self.endpoint or Url(f"https://sts.{self.universe_domain}")

    @property
    def roles(self) -> tuple[str, ...]:
        """As whom the workload acts, where that is not itself."""
        return (self.service_account,) if self.service_account else ()

    @property
    def run_time_scopes(self) -> frozenset[str] | None:
        """Scopes that clients of the endpoint may ask for; None: any."""
        return None if self.scopes_allowed is None else frozenset((*self.scopes, *self.scopes_allowed))

    @property
    def wanted_audiences(self) -> tuple[str, ...]:
        """Google takes the resource name with and without https:; with it, it is what its guide for Kubernetes has projected.

        https://cloud.google.com/iam/docs/reference/rest/v1/projects.locations.workloadIdentityPools.providers#Oidc
        """
        path = self.workload_identity_provider
        return self.audiences or ((f"https://iam.googleapis.com/{path}",) if path else ())


def faults(settings: GcpSettings) -> Iterator[tuple[str, str]]:
    """What is wrong between the settings: the field, and what is allowed."""
    named = bool(settings.workload_identity_provider)
    if (settings.gke and named) or not (settings.gke or named or settings.from_service_account):
        yield "workloadIdentityProvider", "belongs here, or gke: true, and not both"
    if settings.gke and settings.universe_domain != UNIVERSE:
        yield "universeDomain", f"cannot be another than {UNIVERSE} with gke: true"
    if settings.gke and settings.audiences:
        yield "audiences", "follow from the cluster with gke: true"
    yield from _account_faults(settings)
    if not settings.exchange and (settings.delegates or settings.scopes != (CLOUD_PLATFORM, EMAIL)):
        yield "exchange", "is false, and an SDK that does the exchange itself takes no delegates or scopes from its file"
    if settings.metadata_endpoint and not settings.gke:
        yield "metadataEndpoint", "is asked only with gke: true"
    for field, url in (("endpoint", settings.endpoint), ("iamEndpoint", settings.iam_endpoint)):
        yield from ((field, message) for message in (*_place_faults(url), *_way_faults(url, settings)))
    yield from (("metadataEndpoint", message) for message in _place_faults(settings.metadata_endpoint))


def _account_faults(settings: GcpSettings) -> Iterator[tuple[str, str]]:
    account, lifetime = settings.service_account, settings.lifetime
    if settings.delegates and not account and not settings.from_service_account:
        yield "delegates", "lead to a service account: set serviceAccount"
    if account in settings.delegates:
        yield "delegates", f"has {account}, which is where they lead to"
    if lifetime and not account and not settings.from_service_account:
        yield "lifetime", "is of a service account's token: set serviceAccount, or leave it to Google"
    if lifetime and not SHORTEST.seconds <= lifetime.seconds <= LONGEST.seconds:
        yield "lifetime", f"is {lifetime}: Google allows {SHORTEST} to {LONGEST}"


def _place_faults(url: Url | None) -> Iterator[str]:
    if url and url.shown != url.text:
        yield "holds a user or password, which Google does not take"
    if url and (url.shown.split("://", 1)[1].rstrip("/").count("/") or url.hostname.endswith(".")):
        yield "has to be scheme and host alone, without a path or a dot at its end"


def _way_faults(url: Url | None, settings: GcpSettings) -> Iterator[str]:
    """A token is sent there."""
    if url and url.scheme == "http" and not Address(url.hostname, 0).loopback:
        yield "would send the token in the clear: write https://, or http:// with a loopback address"
    if url and url.scheme == "http" and settings.proxy:
        yield "is http://, so provider.proxy would see the token: write https://, or leave the proxy out"
