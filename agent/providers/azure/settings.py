"""The settings of an application or managed identity, the rules between them, and what follows from them.

https://learn.microsoft.com/entra/workload-id/workload-identity-federation
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

import msgspec

from agent.envvars import EnvVars, ServedAt
from agent.http.endpoint import refused
from agent.model import Paths
from agent.providers.azure import environment
from agent.providers.azure.authority import Authority
from agent.providers.azure.trust import Trust
from agent.providers.settings import CloudDefaults
from agent.settings import Url
from agent.variants import facts, variant_of

GUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
DOMAIN = r"[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?(\.[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?)+"
"""With a dot: `common`, `organizations` and `adfs` are not tenants, so they can trust no identity."""
TENANT = "the tenant's GUID, or a verified domain of it such as contoso.onmicrosoft.com"
CLIENT = "the client ID of an application or managed identity, which is a GUID"
SCOPE = "a resource with /.default behind it, such as https://vault.azure.net/.default"
RESOURCE = "a resource without /.default behind it, such as https://vault.azure.net"
TenantId = Annotated[str, msgspec.Meta(pattern=rf"^({GUID}|{DOMAIN})$(?!\n)", max_length=253, description=TENANT)]
ClientId = Annotated[str, msgspec.Meta(pattern=rf"^{GUID}$(?!\n)", description=CLIENT)]
Scope = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_.:/-]+/\.default$(?!\n)", max_length=512, description=SCOPE)]
Resource = Annotated[str, msgspec.Meta(pattern=r"^(?!.*/\.default$)[0-9A-Za-z_.:/-]+$(?!\n)", max_length=512, description=RESOURCE)]
SUFFIX = "/.default"
"""Of a scope that asks for all permissions granted beforehand: the only kind of scope without a signed-in user."""


class AzureSettings(CloudDefaults, tag="azure", tag_field="type"):
    """The client, and the scopes it asks for. The agent keeps a token fresh for each scope, each by itself."""

    annotation_keys: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"azure.workload.identity/client-id": "clientId", "azure.workload.identity/tenant-id": "tenantId"}
    )
    """As Azure's own webhook reads them (Azure/azure-workload-identity)."""
    principal_key: ClassVar[str] = "clientId"

    tenant_id: TenantId = ""
    """Empty only with `fromServiceAccount`: an annotation names it; the same holds for `clientId`."""
    client_id: ClientId = ""
    from_service_account: bool = False
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(max_length=17)] = ()
    """Empty: Azure Resource Manager of the authority's cloud."""
    resources: Annotated[tuple[Resource, ...], msgspec.Meta(max_length=64)] = ()
    """The other resources that clients may ask for at run time; none if it is empty."""
    authority: Authority = Authority.parse("public")
    format: Literal["dotenv", "azure.json"] = "dotenv"
    """Of `credentialsFile`."""
    audiences: tuple[str, ...] = ("api://AzureADTokenExchange",)
    exchange: bool = True
    endpoint: Url | None = None
    """The agent asks this address instead of the authority; SDKs still ask the authority."""
    ca_file: str | None = None
    proxy: Url | None = None

    @property
    def asked_at(self) -> Url:
        """The token service that is asked."""
        return self.endpoint or Url(self.authority.url)

    @property
    def kept(self) -> tuple[str, ...]:
        """The scopes that the agent keeps fresh, the identity's own first."""
        cloud = self.authority.cloud
        return self.scopes or ((cloud.management + SUFFIX,) if cloud else ())

    @property
    def principal(self) -> str:
        return self.client_id

    @property
    def own_resource(self) -> str:
        """The resource of the identity's own token; empty if there is none to ask for."""
        return self.kept[0].removesuffix(SUFFIX) if self.kept else ""

    @property
    def others(self) -> Sequence[str]:
        """The other resources that clients may ask for at run time."""
        return (*self.variants(), *self.resources)

    def variant_of(self, resource: str) -> str | None:
        """Return the variant of a resource that a client asks for; None if the configuration does not allow it."""
        return variant_of(resource, self.own_resource, self.others)

    def faults(self) -> Iterator[tuple[str, str]]:
        for field, value, wanted in (("tenantId", self.tenant_id, TENANT), ("clientId", self.client_id, CLIENT)):
            if not value and not self.from_service_account:
                yield field, f"missing: write {wanted}, or fromServiceAccount: true"
        if not self.exchange and self.resources:
            yield "resources", "names what the agent may ask for, but exchange: false leaves the exchange to the SDK"
        if self.exchange and not self.kept:
            yield (
                "scopes",
                "empty, and the authority is not one of Microsoft's clouds: name at least one scope, such as https://HOST/.default",
            )
        for index, scope in enumerate(self.scopes):
            if scope in self.scopes[:index]:
                yield f"scopes[{index}]", "is listed twice"
        yield from refused(self.endpoint, self.proxy, by="Entra")

    def environment(self, identity: str, paths: Paths) -> EnvVars:
        return environment.workload_identity(paths, tenant=self.tenant_id, client=self.client_id, authority=self.authority)

    def served(self, identity: str, at: ServedAt) -> EnvVars:
        return environment.served(at, identity)

    def trust(self, *, issuer: str, subject: str) -> Trust:
        """Return the trust that the application or managed identity needs."""
        cloud = self.authority.cloud
        return Trust(
            tenant=self.tenant_id,
            client=self.client_id,
            issuer=issuer,
            subject=subject,
            audiences=self.audiences,
            cloud=cloud.az if cloud else "",
        )

    def trust_commands(self, *, issuer: str, subject: str, claims: Collection[str] = ()) -> Sequence[str]:
        return self.trust(issuer=issuer, subject=subject).lines()

    def variants(self) -> Sequence[str]:
        """Return the resources of the scopes after the first."""
        return tuple(scope.removesuffix(SUFFIX) for scope in self.kept[1:]) if self.exchange else ()

    def facts(self) -> Mapping[str, str]:
        return facts(self.client_id, self.own_resource, self.others)
