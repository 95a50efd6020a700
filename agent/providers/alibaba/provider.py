"""Alibaba Cloud: STS AssumeRoleWithOIDC, and the files and variables its SDKs read. No SDK: it is one unsigned POST.

https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc
https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-endpoint
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec

from agent.envvars import EnvVars, ServedAt
from agent.errors import Rejected, Unavailable, without_context
from agent.http.client import PATIENCE, HttpClient
from agent.model import Credential, IdentityToken, Paths, PriorDelivery, Secret
from agent.providers.alibaba import environment as variables
from agent.providers.alibaba.credentials import Keys, SessionCredential, granted, read_keys
from agent.providers.alibaba.errors import Attempt, ServiceError, read, sort
from agent.providers.alibaba.settings import ANNOTATIONS, AlibabaSettings, annotated, faults, session_name
from agent.providers.alibaba.trust import Trust
from agent.toolbox import Toolbox

__all__ = ["ANNOTATIONS", "AlibabaProvider", "AlibabaSettings", "annotated", "environment", "facts", "faults", "served", "trust_of"]

FORM = "application/x-www-form-urlencoded"
ABSURD = timedelta(days=3650)
"""A session that claims to last longer is none of STS's, which last for twelve hours at most."""


class TokenFileCredential:
    """What an SDK needs to do the exchange itself. Holds no secret and no clock of its own."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None

    def __init__(self, settings: AlibabaSettings, identity: str) -> None:
        self._settings = settings
        self._session_name = session_name(settings, identity)

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        """No `credentialsFile` where the token's path cannot be written in one: a wrong one would fail far from its cause."""
        settings = self._settings
        config = {
            "roleARN": settings.role_arn,
            "oidcProviderARN": settings.oidc_provider_arn,
            **({"region": settings.region} if settings.region else {}),
            "sessionName": self._session_name,
            "audiences": settings.audiences,
        }
        ini = variables.ini(paths, role=settings.role_arn, provider=settings.oidc_provider_arn, session=self._session_name)
        files = {"config": Secret(msgspec.json.encode(config).decode())}
        return {"credentialsFile": Secret(ini), **files} if ini else files

    def document(self) -> Mapping[str, Any]:
        return {}


class AlibabaProvider:
    """Exchanges a token for a session of the role, or leaves that to the SDK."""

    def __init__(self, settings: AlibabaSettings, identity: str, toolbox: Toolbox, *, patience: float = PATIENCE) -> None:
        self._settings = settings
        self._identity = identity
        self._clock = toolbox.clock
        self._wire = HttpClient(toolbox.http, whose=identity, ca_file=settings.ca_file, proxy=settings.proxy, patience=patience)
        self._token_file = TokenFileCredential(settings, identity)
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
                f"{self._identity}: {settings.role_arn} cannot be taken without a token", remedy="give the identity another source"
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
        """Keys and their expiry. Raises Unavailable or Rejected."""
        settings, whose, host = self._settings, self._identity, self._settings.sts.host
        with without_context():
            try:
                answer = read(await self._wire.send("POST", self._url(), headers={"Content-Type": FORM}, body=self._body(token)))
            except ServiceError as refused:
                question = Attempt(
                    role=settings.role_arn,
                    provider=settings.oidc_provider_arn,
                    issuer=token.issuer,
                    subject=token.subject,
                    audiences=token.audiences,
                )
                now = self._clock.now()
                raise sort(refused, question, whose=whose, host=host, secrets=[token.value], now=now) from None
            else:
                grant, now = granted(answer), self._clock.now()
                if grant and now < grant[1] < now + ABSURD:
                    return grant
                reason = (
                    "no complete session" if not grant else "a session that has ended already" if grant[1] <= now else "an endless session"
                )
                remedy = "check provider.endpoint and provider.proxy, and for a sign-in page in between, if this stays"
                raise Unavailable(
                    f"{whose}: {host} granted {reason}", remedy="compare the clock of this machine with Alibaba's" if grant else remedy
                )

    def _url(self) -> str:
        """In the query what every call says, as Alibaba's own SDKs have it there; nothing of the identity."""
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
            "RoleSessionName": session_name(settings, self._identity),
            **({"DurationSeconds": settings.duration.seconds} if settings.duration else {}),
        }
        return urlencode(form).encode()


def served(settings: AlibabaSettings, identity: str, spot: ServedAt) -> EnvVars:
    """What makes an SDK take this identity from the endpoint."""
    return variables.served(spot, identity, role=facts(settings).get("role", ""))


def facts(settings: AlibabaSettings) -> Mapping[str, str]:
    """What the metadata dialects say of it beside the credential."""
    found = {"role": settings.role_arn.rpartition("/")[2], "region": settings.region or ""}
    return {name: value for name, value in found.items() if value}


def environment(settings: AlibabaSettings, identity: str, paths: Paths) -> EnvVars:
    """What makes an SDK take this identity from its files."""
    return variables.token_file(
        paths,
        role=settings.role_arn,
        provider=settings.oidc_provider_arn,
        session=session_name(settings, identity),
        region=settings.region or "",
        vpc=settings.vpc,
    )


def trust_of(settings: AlibabaSettings, *, issuer: str, subject: str) -> Trust:
    """Whom the role has to trust."""
    return Trust(role=settings.role_arn, provider=settings.oidc_provider_arn, issuer=issuer, subject=subject, audiences=settings.audiences)
