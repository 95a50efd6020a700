"""What an operator says of an application or managed identity, and what of it cannot be so.

https://learn.microsoft.com/entra/workload-id/workload-identity-federation
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from agent.http.endpoint import refused
from agent.providers.azure.authority import Authority
from agent.settings import Settings, Url
from agent.variants import variant_of as chosen

GUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
DOMAIN = r"[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?(\.[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?)+"
"""With a dot: `common`, `organizations` and `adfs` are no tenant that could trust anybody."""
TENANT = "the tenant's GUID, or a verified domain of it such as contoso.onmicrosoft.com"
CLIENT = "the client ID of an application or managed identity, which is a GUID"
SCOPE = "a resource with /.default behind it, such as https://vault.azure.net/.default"
RESOURCE = "a resource without /.default behind it, such as https://vault.azure.net"
TenantId = Annotated[str, msgspec.Meta(pattern=rf"^({GUID}|{DOMAIN})$(?!\n)", max_length=253, description=TENANT)]
ClientId = Annotated[str, msgspec.Meta(pattern=rf"^{GUID}$(?!\n)", description=CLIENT)]
Scope = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_.:/-]+/\.default$(?!\n)", max_length=512, description=SCOPE)]
Resource = Annotated[str, msgspec.Meta(pattern=r"^(?!.*/\.default$)[0-9A-Za-z_.:/-]+$(?!\n)", max_length=512, description=RESOURCE)]
ANNOTATIONS = {"azure.workload.identity/client-id": "clientId", "azure.workload.identity/tenant-id": "tenantId"}
"""Of a ServiceAccount, as Azure's own webhook reads them (Azure/azure-workload-identity), by what they set."""
SUFFIX = "/.default"
"""Of a scope that asks for all that was granted beforehand: the only kind that there is without a person."""


class AzureSettings(Settings, tag="azure", tag_field="type"):
    """Who asks, and for what. Each scope after the first is kept fresh by itself, beside the first."""

    tenant_id: TenantId = ""
    """Empty only with `fromServiceAccount`, where an annotation says it; so the next one."""
    client_id: ClientId = ""
    from_service_account: bool = False
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(max_length=17)] = ()
    """Empty: Azure Resource Manager of the authority's cloud."""
    resources: Annotated[tuple[Resource, ...], msgspec.Meta(max_length=64)] = ()
    """What else may be asked for at run time; nothing where it is empty."""
    authority: Authority = Authority.parse("public")
    format: Literal["dotenv", "azure.json"] = "dotenv"
    """Of `credentialsFile`."""
    audiences: tuple[str, ...] = ("api://AzureADTokenExchange",)
    exchange: bool = True
    endpoint: Url | None = None
    """Who is asked in place of the authority; SDKs are not told of it."""
    ca_file: str | None = None
    proxy: Url | None = None

    @property
    def asked_at(self) -> Url:
        """Who is asked."""
        return self.endpoint or Url(self.authority.url)

    @property
    def kept(self) -> tuple[str, ...]:
        """The scopes that are kept fresh, the identity's own first."""
        cloud = self.authority.cloud
        return self.scopes or ((cloud.management + SUFFIX,) if cloud else ())


def faults(settings: AzureSettings) -> Iterator[tuple[str, str]]:
    """What is wrong between the settings: the field, and what is allowed."""
    for field, value, wanted in (("tenantId", settings.tenant_id, TENANT), ("clientId", settings.client_id, CLIENT)):
        if not value and not settings.from_service_account:
            yield field, f"missing: write {wanted}, or fromServiceAccount: true"
    if not settings.exchange and settings.resources:
        yield "resources", "says what the agent may ask for, which with exchange: false is left to the SDK"
    if settings.exchange and not settings.kept:
        yield "scopes", "empty, and no cloud of Microsoft's is asked: name at least one scope, such as https://HOST/.default"
    for index, scope in enumerate(settings.scopes):
        if scope in settings.scopes[:index]:
            yield f"scopes[{index}]", "is there already"
    yield from refused(settings.endpoint, settings.proxy, by="Entra")


def variants(settings: AzureSettings) -> Sequence[str]:
    """Resources of the scopes after the first, which are kept fresh whether somebody asks or not."""
    return tuple(scope.removesuffix(SUFFIX) for scope in settings.kept[1:]) if settings.exchange else ()


def variant_of(settings: AzureSettings, resource: str) -> str | None:
    """Under what a resource is kept that somebody asks for at run time; None where the configuration does not allow it."""
    return chosen(resource, own_resource(settings), others(settings))


def own_resource(settings: AzureSettings) -> str:
    """What the identity's own token is for; empty where there is nothing to ask for."""
    return settings.kept[0].removesuffix(SUFFIX) if settings.kept else ""


def others(settings: AzureSettings) -> Sequence[str]:
    """What else may be asked for at run time."""
    return (*variants(settings), *settings.resources)
