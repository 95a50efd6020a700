"""Microsoft Azure: a token of an application's or managed identity's federated credential, exchanged by Entra ID for an access token.

https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow#third-case-access-token-request-with-a-federated-credential
"""

from datetime import datetime

from agent.errors import Rejected, Unavailable, without_context
from agent.http.client import REQUEST_TIMEOUT_SECONDS, HttpClient
from agent.model import Credential, IdentityToken, PriorDelivery, Secret
from agent.providers.azure.client import Application, exchange
from agent.providers.azure.credentials import AccessToken, token_file
from agent.providers.azure.errors import Attempt, EntraError, sort
from agent.providers.azure.settings import SUFFIX, AzureSettings
from agent.providers.exchange import implausible_end
from agent.toolbox import Toolbox


class AzureProvider:
    """Exchanges a token for an access token, or leaves that to the SDK."""

    def __init__(self, settings: AzureSettings, identity: str, toolbox: Toolbox, *, timeout: float = REQUEST_TIMEOUT_SECONDS) -> None:
        self._settings = settings
        self._identity = identity
        self._clock = toolbox.clock
        self._client = HttpClient(toolbox.http, whose=identity, ca_file=settings.ca_file, proxy=settings.proxy, timeout=timeout)
        self._token_file = token_file(settings)
        self.audiences = settings.audiences

    @property
    def host(self) -> str:
        return self._settings.asked_at.host if self._settings.exchange else ""

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> Credential:
        settings = self._settings
        if variant and settings.variant_of(variant) != variant:
            raise Rejected(
                f"{self._identity}: the configuration does not allow {variant[:120]!r}",
                remedy="name it in provider.resources, or ask for another",
            )
        if not settings.exchange:
            return self._token_file
        if token is None:
            raise Rejected(
                f"{self._identity}: cannot act as {settings.client_id} without a token", remedy="give the identity another source"
            )
        if not settings.kept:
            raise Rejected(f"{self._identity}: there is no scope to ask for", remedy="name one in provider.scopes")
        resource = variant or settings.own_resource
        issued_at = self._clock.now()
        value, expires_at = await self._ask(token, resource + SUFFIX)
        return AccessToken(
            value=value,
            issued_at=issued_at,
            expires_at=expires_at,
            resource=resource,
            token_file=self._token_file,
            client_id=settings.client_id,
        )

    def restore(self, prior: PriorDelivery) -> Credential | None:
        """No file holds an access token, so the agent asks for a new one after a restart."""
        return None if self._settings.exchange else self._token_file

    async def _ask(self, token: IdentityToken, scope: str) -> tuple[Secret, datetime]:
        """Return an access token and its expiry, UTC. Raise Unavailable or Rejected."""
        settings, host = self._settings, self._settings.asked_at.host
        application = Application(
            authority=settings.authority.url,
            asked_at=settings.asked_at.text.rstrip("/"),
            tenant=settings.tenant_id,
            client=settings.client_id,
        )
        with without_context():
            try:
                value, expires_at = await exchange(self._client, application, scope, token.value, whose=self._identity)
            except EntraError as refused:
                attempt = Attempt(
                    authority=settings.authority.url,
                    tenant=settings.tenant_id,
                    client=settings.client_id,
                    scope=scope,
                    issuer=token.issuer,
                    subject=token.subject,
                    audiences=token.audiences,
                )
                raise sort(refused, attempt, whose=self._identity, host=host, secrets=[token.value], now=self._clock.now()) from None
            else:
                reason = implausible_end(expires_at, self._clock.now())
                if not reason:
                    return value, expires_at
                raise Unavailable(
                    f"{self._identity}: {host} granted a token that {reason}", remedy="compare the clock of this machine with Entra's"
                )
