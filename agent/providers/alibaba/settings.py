"""What an operator says of a RAM role, and what of it cannot be so.

https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc
https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-endpoint
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from agent.http.endpoint import refused
from agent.settings import Duration, Settings, Url

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
    yield from refused(settings.endpoint, settings.proxy, by="STS")


def annotated(settings: AlibabaSettings, name: str) -> str:
    """The role of the name that an annotation says: of the account that the OIDC provider is in, as the webhook makes it."""
    return f"acs:ram::{settings.oidc_provider_arn.split(':')[3]}:role/{name}"


def session_name(settings: AlibabaSettings, identity: str) -> str:
    """The configured one, or one that is the same at every start, so that ActionTrail shows one actor; at most 64 characters."""
    if settings.session_name:
        return settings.session_name
    tail = hashlib.sha256(f"{identity}\0{settings.role_arn}".encode()).hexdigest()[:8]
    return f"wi-{re.sub(r'[^A-Za-z0-9.@_-]', '-', identity)[:52]}-{tail}"
