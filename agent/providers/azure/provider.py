"""Microsoft Azure: a token of an application's or managed identity's federated credential, exchanged by Entra ID for an access token.

https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow#third-case-access-token-request-with-a-federated-credential
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from agent.envvars import EnvVars
from agent.errors import Rejected, Unavailable, without_context
from agent.http.client import PATIENCE, HttpClient
from agent.model import Credential, IdentityToken, Paths, PriorDelivery, Secret
from agent.providers.azure import environment as variables
from agent.providers.azure.client import Application, exchange
from agent.providers.azure.credentials import AccessToken, TokenFileCredential
from agent.providers.azure.errors import Attempt, ServiceError, sort
from agent.providers.azure.settings import ANNOTATIONS, SUFFIX, AzureSettings, faults, others, own_resource, variant_of, variants
from agent.providers.azure.trust import Trust
from agent.toolbox import Toolbox
from agent.variants import facts as facts_of

__all__ = ["ANNOTATIONS", "AzureProvider", "AzureSettings", "environment", "facts", "faults", "trust_of", "variant_of", "variants"]

LONGEST = timedelta(days=3650)
"""A token that claims to last longer is none of Entra's, which last for a day at most."""


class AzureProvider:
    """Exchanges a token for an access token, or leaves that to the SDK."""

    def __init__(self, settings: AzureSettings, identity: str, toolbox: Toolbox, *, patience: float = PATIENCE) -> None:
        self._settings = settings
        self._identity = identity
        self._clock = toolbox.clock
        self._wire = HttpClient(toolbox.http, whose=identity, ca_file=settings.ca_file, proxy=settings.proxy, patience=patience)
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

    def restore(self, prior: PriorDelivery) -> Credential | None:
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
        with without_context():
            try:
                value, expires_at = await exchange(self._wire, application, scope, token.value, whose=self._identity)
            except ServiceError as refused:
                question = Attempt(
                    authority=settings.authority.url,
                    tenant=settings.tenant_id,
                    client=settings.client_id,
                    scope=scope,
                    issuer=token.issuer,
                    subject=token.subject,
                    audiences=token.audiences,
                )
                now = self._clock.now()
                raise sort(refused, question, whose=self._identity, host=host, secrets=[token.value], now=now) from None
            else:
                now = self._clock.now()
                if now < expires_at < now + LONGEST:
                    return value, expires_at
                reason = "has ended already" if expires_at <= now else "never ends"
                raise Unavailable(
                    f"{self._identity}: {host} granted a token that {reason}", remedy="compare the clock of this machine with Entra's"
                )


def environment(settings: AzureSettings, identity: str, paths: Paths) -> EnvVars:
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
