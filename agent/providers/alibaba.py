"""Alibaba Cloud: STS AssumeRoleWithOIDC, and the files and variables its SDKs read. No SDK: it is one unsigned POST.

https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc
https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-endpoint
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from agent.alibaba import variables
from agent.alibaba.credential import Keys, SessionCredential, granted, read_keys
from agent.alibaba.refusals import Question, RefusedError, read, sort
from agent.alibaba.trust import Trust
from agent.errors import RefreshError, Rejected, Unavailable
from agent.model import Credential, IdentityToken, Legacy, Paths, Secret
from agent.settings import Address, Duration, Settings, Url
from agent.toolbox import Toolbox
from agent.variables import Spot, Variables
from agent.wire import PATIENCE, Wire

RoleArn = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^acs:ram::[0-9]{5,20}:role/[A-Za-z0-9._-]{1,64}$(?!\n)",
        description="a RAM role such as acs:ram::1234567890123456:role/web",
    ),
]
OidcProviderArn = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^acs:ram::[0-9]{5,20}:oidc-provider/[A-Za-z0-9._-]{1,128}$(?!\n)",
        description="an OIDC provider in RAM such as acs:ram::1234567890123456:oidc-provider/cluster",
    ),
]
Region = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,}(-[a-z0-9]+)+$(?!\n)", max_length=64)]
ANNOTATIONS = {"pod-identity.alibabacloud.com/role-name": "roleArn"}
"""Of a ServiceAccount, as ack-pod-identity-webhook reads them, by what they set."""
SessionName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.@_-]{2,64}$(?!\n)", description="2 to 64 letters, digits or any of .@_-")]
SHORTEST, LONGEST = Duration(900), Duration(43200)
"""What STS allows `DurationSeconds` to be; the role may allow less."""
FORM = "application/x-www-form-urlencoded"
ABSURD = timedelta(days=3650)
"""A session that claims to last longer is none of STS's, which last for twelve hours at most."""


class AlibabaSettings(Settings, tag="alibaba", tag_field="type"):
    """The role to take, and where."""

    oidc_provider_arn: OidcProviderArn
    role_arn: RoleArn = ""
    """Empty only with `fromServiceAccount`, where an annotation says its name."""
    from_service_account: bool = False
    region: Region | None = None
    """None: the one endpoint for all regions."""
    vpc: bool = False
    """Whether to ask the region's endpoint inside a VPC."""
    session_name: SessionName | None = None
    duration: Duration | None = None
    """None leaves it to Alibaba: one hour."""
    audiences: tuple[str, ...] = ("sts.aliyuncs.com",)
    exchange: bool = True
    endpoint: Url | None = None
    """None: STS of the region. SDKs that do the exchange themselves cannot be told of it."""
    ca_file: str | None = None
    proxy: Url | None = None

    @property
    def sts(self) -> Url:
        """Who is asked."""
        region = f".{self.region}" if self.region else ""
        return self.endpoint or Url(f"https://sts{'-vpc' if self.vpc else ''}{region}.aliyuncs.com")


def faults(settings: AlibabaSettings) -> Iterator[tuple[str, str]]:
    """What is wrong between the settings: the field, and what is allowed."""
    if settings.duration and not SHORTEST.seconds <= settings.duration.seconds <= LONGEST.seconds:
        yield "duration", f"is {settings.duration}: Alibaba allows {SHORTEST} to {LONGEST}"
    if not settings.role_arn and not settings.from_service_account:
        yield "roleArn", "missing: write a RAM role such as acs:ram::1234567890123456:role/web, or fromServiceAccount: true"
    if settings.vpc and not settings.region:
        yield "vpc", "needs a region: each has its own endpoint inside a VPC"
    if not settings.exchange and settings.duration:
        yield "exchange", "is false, and an SDK that does the exchange itself takes no duration from its files"
    endpoint = settings.endpoint
    if endpoint and endpoint.shown != endpoint.text:
        yield "endpoint", "holds a user or password, which STS does not take"
    if endpoint and endpoint.scheme == "http" and not Address(endpoint.hostname, 0).loopback:
        yield "endpoint", "would send the token in the clear: write https://, or http:// with a loopback address"
    if endpoint and endpoint.scheme == "http" and settings.proxy:
        yield "proxy", "would see the token, because the endpoint is http://: write https:// there, or leave the proxy out"


def annotated(settings: AlibabaSettings, name: str) -> str:
    """The role of the name that an annotation says: of the account that the OIDC provider is in, as the webhook makes it."""
    return f"acs:ram::{settings.oidc_provider_arn.split(':')[3]}:role/{name}"


def session_name(settings: AlibabaSettings, identity: str) -> str:
    """The configured one, or one that is the same at every start, so that ActionTrail shows one actor; at most 64 characters."""
    if settings.session_name:
        return settings.session_name
    tail = hashlib.sha256(f"{identity}\0{settings.role_arn}".encode()).hexdigest()[:8]
    return f"wi-{re.sub(r'[^A-Za-z0-9.@_-]', '-', identity)[:52]}-{tail}"


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
        self._wire = Wire(toolbox.http, whose=identity, ca_file=settings.ca_file, proxy=settings.proxy, patience=patience)
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

    def restore(self, legacy: Legacy) -> Credential | None:
        if not self._settings.exchange:
            return self._token_file
        keys = read_keys(legacy.files["credentials"].reveal()) if "credentials" in legacy.files else None
        issued_at, expires_at = legacy.delivery.credential_issued_at, legacy.delivery.credential_expires_at
        return self._credential(keys, issued_at, expires_at) if keys and issued_at and expires_at else None

    def _credential(self, keys: Keys, issued_at: datetime, expires_at: datetime) -> SessionCredential:
        region = self._settings.region or ""
        return SessionCredential(keys=keys, issued_at=issued_at, expires_at=expires_at, region=region, token_file=self._token_file)

    async def _ask(self, token: IdentityToken) -> tuple[Keys, datetime]:
        """Keys and their expiry. Raises Unavailable or Rejected."""
        settings, whose, host = self._settings, self._identity, self._settings.sts.host
        try:
            answer = read(await self._wire.send("POST", self._url(), headers={"Content-Type": FORM}, body=self._body(token)))
        except RefusedError as refused:
            question = Question(
                role=settings.role_arn,
                provider=settings.oidc_provider_arn,
                issuer=token.issuer,
                subject=token.subject,
                audiences=token.audiences,
            )
            failure: RefreshError = sort(refused, question, whose=whose, host=host, secrets=[token.value], now=self._clock.now())
        else:
            grant, now = granted(answer), self._clock.now()
            if grant and now < grant[1] < now + ABSURD:
                return grant
            reason = "no complete session" if not grant else "a session that has ended already" if grant[1] <= now else "an endless session"
            remedy = "check provider.endpoint and provider.proxy, and for a sign-in page in between, if this stays"
            failure = Unavailable(
                f"{whose}: {host} granted {reason}", remedy="compare the clock of this machine with Alibaba's" if grant else remedy
            )
        raise failure  # outside, so that it carries no context to be printed

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


def served(settings: AlibabaSettings, identity: str, spot: Spot) -> Variables:
    """What makes an SDK take this identity from the endpoint."""
    return variables.served(spot, identity, role=facts(settings).get("role", ""))


def facts(settings: AlibabaSettings) -> Mapping[str, str]:
    """What the metadata dialects say of it beside the credential."""
    found = {"role": settings.role_arn.rpartition("/")[2], "region": settings.region or ""}
    return {name: value for name, value in found.items() if value}


def environment(settings: AlibabaSettings, identity: str, paths: Paths) -> Variables:
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
