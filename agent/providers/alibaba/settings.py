"""The settings of a RAM role, the rules between them, and what follows from them.

https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc
https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-endpoint
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar

import msgspec

from agent.envvars import EnvVars, ServedAt
from agent.http.endpoint import refused
from agent.model import Paths
from agent.providers.alibaba import environment
from agent.providers.alibaba.trust import Trust
from agent.providers.exchange import session_name
from agent.providers.settings import CloudDefaults
from agent.settings import Duration, Url

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
SessionName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.@_-]{2,64}$(?!\n)", description="2 to 64 letters, digits or any of .@_-")]
MIN_SESSION, MAX_SESSION = Duration(900), Duration(43200)
"""The `DurationSeconds` that STS allows; the role may allow less."""


class AlibabaSettings(CloudDefaults, tag="alibaba", tag_field="type"):
    """The role to assume, and where."""

    annotation_keys: ClassVar[Mapping[str, str]] = MappingProxyType({"pod-identity.alibabacloud.com/role-name": "roleArn"})
    """As ack-pod-identity-webhook reads them."""
    principal_key: ClassVar[str] = "roleArn"
    credential_noun: ClassVar[str] = "a session"

    oidc_provider_arn: OidcProviderArn
    role_arn: RoleArn = ""
    """Empty only with `fromServiceAccount`: an annotation names it."""
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
    """None: STS of the region. SDKs that do the exchange themselves have no setting for it."""
    ca_file: str | None = None
    proxy: Url | None = None

    @property
    def sts(self) -> Url:
        """The STS that is asked."""
        region = f".{self.region}" if self.region else ""
        return self.endpoint or Url(f"https://sts{'-vpc' if self.vpc else ''}{region}.aliyuncs.com")

    @property
    def principal(self) -> str:
        return self.role_arn

    @property
    def requested_lifetime(self) -> Duration | None:
        return self.duration

    def session(self, identity: str) -> str:
        """Return the session name: the configured one, or one that ActionTrail shows as one actor over every start."""
        return self.session_name or session_name(identity, self.role_arn, forbidden=r"[^A-Za-z0-9.@_-]")

    def faults(self) -> Iterator[tuple[str, str]]:
        if self.duration and not MIN_SESSION.seconds <= self.duration.seconds <= MAX_SESSION.seconds:
            yield "duration", f"is {self.duration}: Alibaba allows {MIN_SESSION} to {MAX_SESSION}"
        if not self.role_arn and not self.from_service_account:
            yield "roleArn", "missing: write a RAM role such as acs:ram::1234567890123456:role/web, or fromServiceAccount: true"
        if self.vpc and not self.region:
            yield "vpc", "needs a region: each has its own endpoint inside a VPC"
        if not self.exchange and self.duration:
            yield "exchange", "is false, and an SDK that does the exchange itself takes no duration from its files"
        yield from refused(self.endpoint, self.proxy, by="STS")

    def annotated(self, text: str) -> str:
        """Return the ARN of the role with this name, in the account of the OIDC provider, as the webhook makes it."""
        return f"acs:ram::{self.oidc_provider_arn.split(':')[3]}:role/{text}"

    def environment(self, identity: str, paths: Paths) -> EnvVars:
        return environment.token_file(
            paths,
            role=self.role_arn,
            provider=self.oidc_provider_arn,
            session=self.session(identity),
            region=self.region or "",
            vpc=self.vpc,
        )

    def served(self, identity: str, at: ServedAt) -> EnvVars:
        return environment.served(at, identity, role=self.facts().get("role", ""))

    def trust(self, *, issuer: str, subject: str) -> Trust:
        """Return the trust that the role needs."""
        return Trust(role=self.role_arn, provider=self.oidc_provider_arn, issuer=issuer, subject=subject, audiences=self.audiences)

    def trust_commands(self, *, issuer: str, subject: str, claims: Collection[str] = ()) -> Sequence[str]:
        return self.trust(issuer=issuer, subject=subject).lines()

    def facts(self) -> Mapping[str, str]:
        found = {"role": self.role_arn.rpartition("/")[2], "region": self.region or ""}
        return {name: value for name, value in found.items() if value}
