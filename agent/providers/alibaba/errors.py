"""The errors of Alibaba's STS, sorted by the reaction that each calls for.

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
from agent.providers.exchange import ServiceError, TokenFacts
from agent.sanitize import quotes, repeatable, seconds

TROUBLED = ("Throttling", "ServiceUnavailable", "InternalError", "ServiceBusy", "RequestTimeout")
"""Beginnings of codes: there are Throttling.User, Throttling.Api and more."""
UNFETCHED = "AuthenticationFail.OIDCToken.IssuerConfigurationBroken"
"""Alibaba could not get the issuer's documents."""
CODE = re.compile(r"[A-Za-z0-9_.:-]{1,80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(TokenFacts):
    """What a remedy needs to know of the request. Nothing secret."""

    role: str
    provider: str
    """The ARN under which RAM knows the issuer."""


def read(answer: HttpResponse) -> dict[str, Any]:
    """Return the JSON object of a successful answer; empty if there is none. Raise ServiceError for any other answer."""
    document = json_object(answer.body) or {}
    if answer.status == 200 and "Code" not in document:
        return document
    stated = document or _xml(answer.body)
    raise ServiceError(
        code=str(stated.get("Code") or ""),
        text=str(stated.get("Message") or ""),
        status=answer.status,
        retry_after=answer.headers.get("Retry-After", ""),
    )


def _xml(body: bytes) -> dict[str, str]:
    """Return Code and Message of `<Error>`, which the gateway writes before it reads `Format=JSON`. No XML parser: the body is foreign."""
    text = body.decode(errors="replace")
    if "<Error>" not in text[:200]:
        return {}
    found = {name: re.search(rf"<{name}>([^<>]*)</{name}>", text) for name in ("Code", "Message")}
    return {name: match[1] for name, match in found.items() if match}


def sort(refused: ServiceError, attempt: Attempt, *, whose: str, host: str, secrets: Sequence[Secret], now: datetime) -> RefreshError:
    """Return the failure to raise. It repeats Alibaba's own words unless they repeat a secret."""
    code = refused.code if CODE.fullmatch(refused.code) and not quotes(refused.code, secrets) else ""
    words = repeatable(refused.text, secrets)
    message = f"{whose}: {host} answered {refused.status} {code or 'without a code'}{': ' if words else ''}{words}"
    if code == UNFETCHED or code.startswith(TROUBLED) or refused.transient:
        remedy = f"let Alibaba fetch {attempt.issuer}/.well-known/openid-configuration" if code == UNFETCHED else ""
        return Unavailable(message, remedy=remedy, retry_after=seconds(refused.retry_after, now))
    if not code:
        return Rejected(message, remedy=f"this was not STS: check provider.endpoint and provider.proxy, and any gateway in front of {host}")
    remedies = _remedies(attempt)
    return Rejected(message, remedy=next((remedies[part] for part in _parts(code) if part in remedies), f"look up {code} in STS's list"))


def _parts(code: str) -> Iterator[str]:
    """Yield the code, then the code without its last words: EntityNotExist.Role, EntityNotExist."""
    while code:
        yield code
        code = code.rpartition(".")[0]


def _remedies(attempt: Attempt) -> Mapping[str, str]:
    audience = ", ".join(attempt.audiences)
    clocks = "compare the clock of this machine, and of the token's issuer, with the right time"
    issuer = f"correct provider.oidcProviderArn, or set the issuer of the OIDC provider {attempt.provider} to {attempt.issuer}"
    allowed = f"let the trust policy of {attempt.role} allow sts:AssumeRole to {attempt.provider}"
    return {
        "AuthenticationFail.OIDCToken.AudienceNotMatch": f"add {audience} to the client IDs of the OIDC provider {attempt.provider},"
        " or correct provider.audiences",
        "AuthenticationFail.OIDCToken.Expired": f"{clocks}, and check that the source gives a new token each time",
        "AuthenticationFail.OIDCToken.IssuerNotMatch": issuer,
        "AuthenticationFail.OIDCToken.PublicKeyFingerprintMismatch": f"update the fingerprints of the OIDC provider {attempt.provider}:"
        f" another authority signs the certificates of {attempt.issuer} now",
        "AuthenticationFail.OIDCToken": f"let {attempt.issuer}/.well-known/openid-configuration lead to the key that signed the token;"
        f" {issuer}; {clocks}",
        "AuthenticationFail.NoPermission": f"{allowed} with oidc:iss = {attempt.issuer}, oidc:aud = {audience} and"
        f" oidc:sub = {attempt.subject}; Alibaba refuses a missing provider with the same code",
        "NoPermission": allowed,
        "EntityNotExist.Role": f"create {attempt.role}, or correct provider.roleArn",
        "EntityNotExist": f"create {attempt.provider}, or correct provider.oidcProviderArn",
        "InvalidParameter.DurationSeconds": f"shorten provider.duration, or raise the maximum session duration of {attempt.role}",
        "InvalidParameter": "check provider.roleArn, oidcProviderArn, sessionName and duration",
        "InvalidTimeStamp": "compare the clock of this machine with Alibaba's",
        "InvalidAction": "check provider.endpoint: the server there is not STS",
        "InvalidVersion": "check provider.endpoint: the server there is not STS",
    }
