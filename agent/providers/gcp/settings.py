"""The settings of an identity in Google Cloud, the rules between them, and what follows from them.

https://cloud.google.com/iam/docs/workload-identity-federation
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar

import msgspec

from agent.envvars import EnvVars, ServedAt
from agent.model import Paths
from agent.providers.gcp import environment
from agent.providers.gcp.environment import UNIVERSE
from agent.providers.gcp.trust import Trust
from agent.providers.settings import CloudDefaults
from agent.settings import Address, Duration, Url
from agent.variants import CLOUD_PLATFORM, MAX_SCOPES, SCOPE_PATTERN

LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
POOL = r"projects/[0-9]{1,30}/locations/global/workloadIdentityPools/[a-z0-9-]{4,32}"
PROVIDER = "the provider's resource name: projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"
ACCOUNT = "a service account's email, such as app@project.iam.gserviceaccount.com"
WorkloadIdentityProvider = Annotated[str, msgspec.Meta(pattern=rf"^{POOL}/providers/[a-z0-9-]{{4,32}}$(?!\n)", description=PROVIDER)]
USER_MANAGED = rf"{LABEL}@{LABEL}(\.{LABEL})*\.iam"
"""Created by a user, also in a project of a domain (`project.example.com`)."""
DEFAULT = rf"[0-9]{{1,30}}-compute@developer|{LABEL}(\.{LABEL})*@appspot"
"""The default service accounts of Compute and of App Engine."""
Email = Annotated[
    str, msgspec.Meta(pattern=rf"^({USER_MANAGED}|{DEFAULT})\.gserviceaccount\.com$(?!\n)", max_length=254, description=ACCOUNT)
]
Scope = Annotated[str, msgspec.Meta(pattern=rf"^{SCOPE_PATTERN}$(?!\n)")]
Domain = Annotated[str, msgspec.Meta(pattern=rf"^{LABEL}(\.{LABEL})+$(?!\n)", max_length=253)]
Project = Annotated[str, msgspec.Meta(pattern=rf"^({LABEL}(\.{LABEL})*:)?{LABEL}$(?!\n)", max_length=253)]
EMAIL = "https://www.googleapis.com/auth/userinfo.email"
MIN_TOKEN_LIFETIME, MAX_TOKEN_LIFETIME = Duration(600), Duration(43200)
"""Of a service account's token; above an hour only if a policy of the organisation allows it."""


class GcpSettings(CloudDefaults, tag="gcp", tag_field="type"):
    """The provider of a workload identity pool that trusts the token, and the principal: the workload itself, or a service account."""

    annotation_keys: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "iam.gke.io/gcp-service-account": "serviceAccount",
            "gcp.auth.fluxcd.io/workload-identity-provider": "workloadIdentityProvider",
        }
    )
    """GKE's own annotation, and Flux's for the provider, which GKE has no annotation for."""
    principal_key: ClassVar[str] = "serviceAccount"

    workload_identity_provider: WorkloadIdentityProvider | None = None
    gke: bool = False
    """The cluster's own pool, which its metadata server names."""
    service_account: Email | None = None
    from_service_account: bool = False
    """Whether a ServiceAccount's annotations may set `serviceAccount` and `workloadIdentityProvider`."""
    delegates: Annotated[tuple[Email, ...], msgspec.Meta(max_length=8)] = ()
    """From the service account that the identity may act as to the one that may act as `serviceAccount`."""
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(min_length=1, max_length=MAX_SCOPES)] = (CLOUD_PLATFORM, EMAIL)
    scopes_allowed: Annotated[tuple[Scope, ...], msgspec.Meta(max_length=MAX_SCOPES)] | None = None
    """Scopes besides `scopes` that clients of the endpoint may ask for; None: any. Empty: no others."""
    lifetime: Duration | None = None
    """Of a service account's token; None leaves it to Google: one hour."""
    universe_domain: Domain = UNIVERSE
    project: Project | None = None
    """For the workload's variables; None: that of the service account, else of the pool."""
    audiences: tuple[str, ...] = ()
    """Of the token, if the pool's provider names allowed audiences; empty: the provider's resource name, Google's default."""
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
        """The security token service, which is asked first."""
        return self.endpoint or Url(f"https://sts.{self.universe_domain}")

    @property
    def principal(self) -> str:
        return self.service_account or ""

    @property
    def run_time_scopes(self) -> frozenset[str] | None:
        """Scopes that clients of the endpoint may ask for; None: any."""
        return None if self.scopes_allowed is None else frozenset((*self.scopes, *self.scopes_allowed))

    @property
    def wanted_audiences(self) -> tuple[str, ...]:
        """Google takes the resource name with and without https:; Google's guide for Kubernetes projects it with https:.

        https://cloud.google.com/iam/docs/reference/rest/v1/projects.locations.workloadIdentityPools.providers#Oidc
        """
        path = self.workload_identity_provider
        return self.audiences or ((f"https://iam.googleapis.com/{path}",) if path else ())

    @property
    def effective_project(self) -> str:
        """Id or number, which Google's APIs treat alike; empty if only the cluster knows it."""
        if self.project:
            return self.project
        local, _, domain = (self.service_account or "").partition("@")
        if domain.endswith(".iam.gserviceaccount.com"):
            project, _, owner = domain.removesuffix(".iam.gserviceaccount.com").partition(".")
            return f"{owner}:{project}" if owner else project
        if local:
            return local.removesuffix("-compute")
        return self.workload_identity_provider.split("/")[1] if self.workload_identity_provider else ""

    def faults(self) -> Iterator[tuple[str, str]]:
        named = bool(self.workload_identity_provider)
        if (self.gke and named) or not (self.gke or named or self.from_service_account):
            yield "workloadIdentityProvider", "belongs here, or gke: true, and not both"
        if self.gke and self.universe_domain != UNIVERSE:
            yield "universeDomain", f"must be {UNIVERSE} with gke: true"
        if self.gke and self.audiences:
            yield "audiences", "follow from the cluster with gke: true"
        yield from self._account_faults()
        if not self.exchange and (self.delegates or self.scopes != (CLOUD_PLATFORM, EMAIL)):
            yield "exchange", "is false, and an SDK that does the exchange itself takes no delegates or scopes from its file"
        if self.metadata_endpoint and not self.gke:
            yield "metadataEndpoint", "has an effect only with gke: true"
        for field, url in (("endpoint", self.endpoint), ("iamEndpoint", self.iam_endpoint)):
            yield from ((field, message) for message in (*_address_faults(url), *self._transport_faults(url)))
        yield from (("metadataEndpoint", message) for message in _address_faults(self.metadata_endpoint))

    def _account_faults(self) -> Iterator[tuple[str, str]]:
        account, lifetime = self.service_account, self.lifetime
        if self.delegates and not account and not self.from_service_account:
            yield "delegates", "lead to a service account: set serviceAccount"
        if account in self.delegates:
            yield "delegates", f"has {account}, which is the service account that they lead to"
        if lifetime and not account and not self.from_service_account:
            yield "lifetime", "is of a service account's token: set serviceAccount, or leave it to Google"
        if lifetime and not MIN_TOKEN_LIFETIME.seconds <= lifetime.seconds <= MAX_TOKEN_LIFETIME.seconds:
            yield "lifetime", f"is {lifetime}: Google allows {MIN_TOKEN_LIFETIME} to {MAX_TOKEN_LIFETIME}"

    def _transport_faults(self, url: Url | None) -> Iterator[str]:
        """Of an address that receives a token."""
        if url and url.scheme == "http" and not Address(url.hostname, 0).loopback:
            yield "would send the token in the clear: write https://, or http:// with a loopback address"
        if url and url.scheme == "http" and self.proxy:
            yield "is http://, so provider.proxy would see the token: write https://, or leave the proxy out"

    def environment(self, identity: str, paths: Paths) -> EnvVars:
        return environment.from_files(
            paths,
            project=self.effective_project,
            universe=self.universe_domain,
            token_file=not self.delegates,
            exchanged=self.exchange,
        )

    def served(self, identity: str, at: ServedAt) -> EnvVars:
        return environment.from_endpoint(at)

    def trust(self, *, issuer: str, subject: str, audiences: Sequence[str] = ()) -> Trust:
        """Return the trust that the pool and the service account need. `audiences`: of the token, if it is known."""
        return Trust(
            provider=self.workload_identity_provider or "",
            issuer=issuer,
            subject=subject,
            audiences=audiences or self.wanted_audiences,
            default_audience=not self.audiences,
            account=self.service_account or "",
            delegates=self.delegates,
        )

    def trust_commands(self, *, issuer: str, subject: str, claims: Collection[str] = ()) -> Sequence[str]:
        return self.trust(issuer=issuer, subject=subject).lines()

    def facts(self) -> Mapping[str, str]:
        """The project number is the pool's, unless the project is one: a service account's project is named by its id."""
        project = self.effective_project
        pool = (self.workload_identity_provider or "//").split("/")[1]
        found = {
            "project-id": project,
            "project-number": project if project.isdigit() else pool,
            "universe-domain": self.universe_domain,
            "account": self.service_account or "",
            "email": self.service_account or (f"{project}.svc.id.goog" if project else ""),
            "scopes": " ".join(self.scopes),
            "scopes-allowed": " ".join(sorted(self.run_time_scopes or ())),
        }
        return {name: value for name, value in found.items() if value}


def _address_faults(url: Url | None) -> Iterator[str]:
    if url and url.shown != url.text:
        yield "holds a user or password, which Google does not accept"
    if url and (url.shown.split("://", 1)[1].rstrip("/").count("/") or url.hostname.endswith(".")):
        yield "must be scheme and host alone, without a path or a dot at its end"
