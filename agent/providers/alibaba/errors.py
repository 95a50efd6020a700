"""What Alibaba's STS says when it refuses, sorted by the reaction that it calls for.

https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc
https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/use-rrsa-to-authorize-pods-to-access-different-cloud-services
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.errors import RefreshError, Rejected, Unavailable
from agent.http.client import HttpResponse
from agent.model import Secret
from agent.parsing import json_object
from agent.sanitize import quotes, repeatable, seconds

TROUBLED = ("Throttling", "ServiceUnavailable", "InternalError", "ServiceBusy", "RequestTimeout")
"""Beginnings of codes: there are Throttling.User, Throttling.Api and more."""
UNFETCHED = "AuthenticationFail.OIDCToken.IssuerConfigurationBroken"
"""Alibaba could not get the issuer's documents."""
CODE = re.compile(r"[A-Za-z0-9_.:-]{1,80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What was asked, as far as a remedy needs to know. Nothing secret."""

    role: str
    provider: str
    """The ARN under which RAM knows the issuer."""
    issuer: str
    subject: str
    audiences: Sequence[str]


class ServiceError(Exception):
    """STS answered, with something else than credentials. Not for anybody above the provider."""

    def __init__(self, *, code: str, text: str, status: int, retry_after: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.text = text
        self.status = status
        self.retry_after = retry_after


def read(answer: HttpResponse) -> dict[str, Any]:
    """The JSON object in an answer of success; empty where there is none. Raises RefusedError for any other."""
    document = json_object(answer.body) or {}
    if answer.status == 200 and "Code" not in document:
        return document
    told = document or _xml(answer.body)
    raise ServiceError(
        code=str(told.get("Code") or ""),
        text=str(told.get("Message") or ""),
        status=answer.status,
        retry_after=answer.headers.get("Retry-After", ""),
    )


def _xml(body: bytes) -> dict[str, str]:
    """Code and Message of `<Error>`: what the gateway says that did not get to `Format=JSON`. No XML parser: the body is a stranger's."""
    text = body.decode(errors="replace")
    if "<Error>" not in text[:200]:
        return {}
    found = {name: re.search(rf"<{name}>([^<>]*)</{name}>", text) for name in ("Code", "Message")}
    return {name: match[1] for name, match in found.items() if match}


def sort(refused: ServiceError, question: Attempt, *, whose: str, host: str, secrets: Sequence[Secret], now: datetime) -> RefreshError:
    """The failure to raise. Alibaba's own words are repeated unless they repeat a secret."""
    code = refused.code if CODE.fullmatch(refused.code) and not quotes(refused.code, secrets) else ""
    words = repeatable(refused.text, secrets)
    message = f"{whose}: {host} answered {refused.status} {code or 'without a code'}{': ' if words else ''}{words}"
    if code == UNFETCHED or code.startswith(TROUBLED) or refused.status in {408, 429} or refused.status >= 500:
        remedy = f"Alibaba has to be able to fetch {question.issuer}/.well-known/openid-configuration" if code == UNFETCHED else ""
        return Unavailable(message, remedy=remedy, retry_after=seconds(refused.retry_after, now))
    if not code:
        return Rejected(message, remedy=f"this was not STS: check provider.endpoint and provider.proxy, and what stands before {host}")
    remedies = _remedies(question)
    return Rejected(message, remedy=next((remedies[part] for part in _parts(code) if part in remedies), f"look up {code} in STS's list"))


def _parts(code: str) -> Iterator[str]:
    """The code, and what is left of it without the last words: EntityNotExist.Role, EntityNotExist."""
    while code:
        yield code
        code = code.rpartition(".")[0]


def _remedies(question: Attempt) -> Mapping[str, str]:
    audience = ", ".join(question.audiences)
    clocks = "compare the clock of this machine, and of the token's issuer, with the right time"
    issuer = f"correct provider.oidcProviderArn, or let the OIDC provider {question.provider} have the issuer {question.issuer}"
    allowed = f"let the trust policy of {question.role} allow sts:AssumeRole to {question.provider}"
    return {
        "AuthenticationFail.OIDCToken.AudienceNotMatch": f"add {audience} to the client IDs of the OIDC provider {question.provider},"
        " or correct provider.audiences",
        "AuthenticationFail.OIDCToken.Expired": f"{clocks}, and check that the source gives a new token each time",
        "AuthenticationFail.OIDCToken.IssuerNotMatch": issuer,
        "AuthenticationFail.OIDCToken.PublicKeyFingerprintMismatch": f"update the fingerprints of the OIDC provider {question.provider}:"
        f" the certificates of {question.issuer} have another authority now",
        "AuthenticationFail.OIDCToken": f"{question.issuer}/.well-known/openid-configuration has to lead to the key that signed the token;"
        f" {issuer}; {clocks}",
        "AuthenticationFail.NoPermission": f"{allowed} with oidc:iss = {question.issuer}, oidc:aud = {audience} and"
        f" oidc:sub = {question.subject}; a provider that is not there is refused alike",
        "NoPermission": allowed,
        "EntityNotExist.Role": f"create {question.role}, or correct provider.roleArn",
        "EntityNotExist": f"create {question.provider}, or correct provider.oidcProviderArn",
        "InvalidParameter.DurationSeconds": f"shorten provider.duration, or raise the maximum session duration of {question.role}",
        "InvalidParameter": "check provider.roleArn, oidcProviderArn, sessionName and duration",
        "InvalidTimeStamp": "compare the clock of this machine with Alibaba's",
        "InvalidAction": "check provider.endpoint: what answers there is not STS",
        "InvalidVersion": "check provider.endpoint: what answers there is not STS",
    }
