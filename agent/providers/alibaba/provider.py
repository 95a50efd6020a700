"""Alibaba Cloud: STS AssumeRoleWithOIDC, and the files and variables its SDKs read. No SDK: it is one unsigned POST.

https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc
https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-endpoint
"""

from datetime import UTC, datetime
from urllib.parse import urlencode

from agent.errors import Rejected, Unavailable, without_context
from agent.http.client import REQUEST_TIMEOUT_SECONDS, HttpClient
from agent.model import Credential, IdentityToken, PriorDelivery
from agent.providers.alibaba.credentials import Keys, SessionCredential, granted, read_keys, token_file
from agent.providers.alibaba.errors import Attempt, read, sort
from agent.providers.alibaba.settings import AlibabaSettings
from agent.providers.exchange import SIGN_IN_PAGE, ServiceError, implausible_end
from agent.toolbox import Toolbox

FORM = "application/x-www-form-urlencoded"


class AlibabaProvider:
    """Exchanges a token for a session of the role, or leaves that to the SDK."""

    def __init__(self, settings: AlibabaSettings, identity: str, toolbox: Toolbox, *, timeout: float = REQUEST_TIMEOUT_SECONDS) -> None:
        self._settings = settings
        self._identity = identity
        self._clock = toolbox.clock
        self._client = HttpClient(toolbox.http, whose=identity, ca_file=settings.ca_file, proxy=settings.proxy, timeout=timeout)
        self._token_file = token_file(settings, identity)
        self.audiences = settings.audiences

    @property
    def host(self) -> str:
        return self._settings.sts.host if self._settings.exchange else ""

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> Credential:
        settings = self._settings
        if not settings.exchange:
            return self._token_file
        if token is None:
            raise Rejected(
                f"{self._identity}: cannot assume {settings.role_arn} without a token", remedy="give the identity another source"
            )
        issued_at = self._clock.now()
        keys, expires_at = await self._ask(token)
        return self._credential(keys, issued_at, expires_at)

    def restore(self, prior: PriorDelivery) -> Credential | None:
        if not self._settings.exchange:
            return self._token_file
        keys = read_keys(prior.files["credentials"].reveal()) if "credentials" in prior.files else None
        issued_at, expires_at = prior.delivery.credential_issued_at, prior.delivery.credential_expires_at
        return self._credential(keys, issued_at, expires_at) if keys and issued_at and expires_at else None

    def _credential(self, keys: Keys, issued_at: datetime, expires_at: datetime) -> SessionCredential:
        region = self._settings.region or ""
        return SessionCredential(keys=keys, issued_at=issued_at, expires_at=expires_at, region=region, token_file=self._token_file)

    async def _ask(self, token: IdentityToken) -> tuple[Keys, datetime]:
        """Return the keys and their expiry, UTC. Raise Unavailable or Rejected."""
        settings, whose, host = self._settings, self._identity, self._settings.sts.host
        with without_context():
            try:
                answer = read(await self._client.send("POST", self._url(), headers={"Content-Type": FORM}, body=self._body(token)))
            except ServiceError as refused:
                attempt = Attempt(
                    role=settings.role_arn,
                    provider=settings.oidc_provider_arn,
                    issuer=token.issuer,
                    subject=token.subject,
                    audiences=token.audiences,
                )
                raise sort(refused, attempt, whose=whose, host=host, secrets=[token.value], now=self._clock.now()) from None
            else:
                grant, now = granted(answer), self._clock.now()
                reason = implausible_end(grant[1], now) if grant else ""
                if grant and not reason:
                    return grant
                raise Unavailable(
                    f"{whose}: {host} granted {f'a session that {reason}' if reason else 'an incomplete session'}",
                    remedy="compare the clock of this machine with Alibaba's" if reason else SIGN_IN_PAGE,
                )

    def _url(self) -> str:
        """Return the URL: the query has the parameters of every call, as in Alibaba's own SDKs, and nothing of the identity."""
        call = {
            "Action": "AssumeRoleWithOIDC",
            "Version": "2015-04-01",
            "Format": "JSON",
            "Timestamp": f"{self._clock.now().astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        return f"{self._settings.sts.text.rstrip('/')}/?{urlencode(call)}"

    def _body(self, token: IdentityToken) -> bytes:
        settings = self._settings
        form = {
            "RoleArn": settings.role_arn,
            "OIDCProviderArn": settings.oidc_provider_arn,
            "OIDCToken": token.value.reveal(),
            "RoleSessionName": settings.session(self._identity),
            **({"DurationSeconds": settings.duration.seconds} if settings.duration else {}),
        }
        return urlencode(form).encode()
