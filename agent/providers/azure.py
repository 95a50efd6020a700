"""Microsoft Azure: a federated credential of an application or managed identity, and the files and variables its SDKs read.

https://learn.microsoft.com/entra/workload-id/workload-identity-federation
https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow#third-case-access-token-request-with-a-federated-credential
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from agent.azure import variables
from agent.azure.authority import Authority
from agent.azure.exchange import Application, exchange
from agent.azure.refusals import Question, RefusedError, sort
from agent.azure.resources import facts as facts_of
from agent.azure.resources import variant_of as chosen
from agent.azure.trust import Trust
from agent.errors import RefreshError, Rejected, Unavailable
from agent.model import Credential, IdentityToken, Legacy, Paths, Secret
from agent.settings import Address, Settings, Url
from agent.toolbox import Toolbox
from agent.variables import Variables
from agent.wire import PATIENCE, Wire

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
LONGEST = timedelta(days=3650)
"""A token that claims to last longer is none of Entra's, which last for a day at most."""


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
    endpoint = settings.endpoint
    if endpoint and endpoint.shown != endpoint.text:
        yield "endpoint", "holds a user or password, which Entra does not take"
    if endpoint and endpoint.scheme == "http" and not Address(endpoint.hostname, 0).loopback:
        yield "endpoint", "would send the token in the clear: write https://, or http:// with a loopback address"
    if endpoint and endpoint.scheme == "http" and settings.proxy:
        yield "proxy", "would see the token, because the endpoint is http://: write https:// there, or leave the proxy out"


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


class TokenFileCredential:
    """What an SDK needs to do the exchange itself. Holds no secret and no clock of its own."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None

    def __init__(self, settings: AzureSettings) -> None:
        self._settings = settings

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        settings = self._settings
        who: dict[str, Any] = {"tenant": settings.tenant_id, "client": settings.client_id, "authority": settings.authority}
        dotenv = settings.format == "dotenv"
        text = variables.dotenv(variables.token_file(paths, **who)) if dotenv else variables.azure_json(paths, **who)
        config = {
            "tenantID": settings.tenant_id,
            "clientID": settings.client_id,
            "authority": settings.authority.url,
            "audiences": settings.audiences,
            **({"scopes": settings.kept} if settings.exchange else {}),
        }
        return {"credentialsFile": Secret(text), "config": Secret(msgspec.json.encode(config).decode())}

    def document(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """An access token for one resource. It lies in no file: no SDK of Azure's reads one."""

    value: Secret
    issued_at: datetime
    expires_at: datetime
    resource: str
    token_file: TokenFileCredential
    client_id: str

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        return self.token_file.files(paths)

    def document(self) -> Mapping[str, Any]:
        return {
            "access_token": self.value,
            "expires_on": self.expires_at,
            "not_before": self.issued_at,
            "resource": self.resource,
            "token_type": "Bearer",
            "client_id": self.client_id,
        }


class AzureProvider:
    """Exchanges a token for an access token, or leaves that to the SDK."""

    def __init__(self, settings: AzureSettings, identity: str, toolbox: Toolbox, *, patience: float = PATIENCE) -> None:
        self._settings = settings
        self._identity = identity
        self._clock = toolbox.clock
        self._wire = Wire(toolbox.http, whose=identity, ca_file=settings.ca_file, proxy=settings.proxy, patience=patience)
        self.audiences = settings.audiences

    @property
    def host(self) -> str:
        return self._settings.asked_at.host if self._settings.exchange else ""

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> Credential:
        settings = self._settings
        if variant and variant_of(settings, variant) != variant:
            raise Rejected(f"{self._identity}: not for {variant[:120]!r}", remedy="name it in provider.resources, or ask for another")
        if not settings.exchange:
            return TokenFileCredential(settings)
        if token is None:
            raise Rejected(
                f"{self._identity}: nobody can be {settings.client_id} without a token", remedy="give the identity another source"
            )
        if not settings.kept:
            raise Rejected(f"{self._identity}: there is no scope to ask for", remedy="name one in provider.scopes")
        resource = variant or own_resource(settings)
        issued_at = self._clock.now()
        value, expires_at = await self._ask(token, resource + SUFFIX)
        return AccessToken(
            value=value,
            issued_at=issued_at,
            expires_at=expires_at,
            resource=resource,
            token_file=TokenFileCredential(settings),
            client_id=settings.client_id,
        )

    def restore(self, legacy: Legacy) -> Credential | None:
        """An access token lies in no file, so after a restart it is asked for anew."""
        return None if self._settings.exchange else TokenFileCredential(self._settings)

    async def _ask(self, token: IdentityToken, scope: str) -> tuple[Secret, datetime]:
        """An access token and its expiry. Raises Unavailable or Rejected."""
        settings, host = self._settings, self._settings.asked_at.host
        application = Application(
            authority=settings.authority.url,
            asked_at=settings.asked_at.text.rstrip("/"),
            tenant=settings.tenant_id,
            client=settings.client_id,
        )
        try:
            value, expires_at = await exchange(self._wire, application, scope, token.value, whose=self._identity)
        except RefusedError as refused:
            question = Question(
                authority=settings.authority.url,
                tenant=settings.tenant_id,
                client=settings.client_id,
                scope=scope,
                issuer=token.issuer,
                subject=token.subject,
                audiences=token.audiences,
            )
            failure: RefreshError = sort(refused, question, whose=self._identity, host=host, secrets=[token.value], now=self._clock.now())
        else:
            now = self._clock.now()
            if now < expires_at < now + LONGEST:
                return value, expires_at
            reason = "has ended already" if expires_at <= now else "never ends"
            failure = Unavailable(
                f"{self._identity}: {host} granted a token that {reason}", remedy="compare the clock of this machine with Entra's"
            )
        raise failure  # outside, so that it carries no context to be printed


def environment(settings: AzureSettings, identity: str, paths: Paths) -> Variables:
    """What makes an SDK take this identity from its files."""
    return variables.workload_identity(paths, tenant=settings.tenant_id, client=settings.client_id, authority=settings.authority)


def facts(settings: AzureSettings) -> Mapping[str, str]:
    """What the metadata dialects say of it beside the token."""
    return facts_of(settings.client_id, own_resource(settings), others(settings))


def trust_of(settings: AzureSettings, *, issuer: str, subject: str) -> Trust:
    """Whom the application or managed identity has to trust."""
    cloud = settings.authority.cloud
    return Trust(
        tenant=settings.tenant_id,
        client=settings.client_id,
        issuer=issuer,
        subject=subject,
        audiences=settings.audiences,
        cloud=cloud.az if cloud else "",
    )
