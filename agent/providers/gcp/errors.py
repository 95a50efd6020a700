"""What Google says when it refuses, sorted by the reaction that it calls for.

The security token service speaks OAuth 2.0 (RFC 6749, section 5.2): `{"error": code, "error_description": words}`. The
IAM Credentials API speaks google.rpc.Status: `{"error": {"status": code, "message": words, "details": [{"reason": …}]}}`.
https://cloud.google.com/apis/design/errors
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.errors import RefreshError, Rejected, Unavailable
from agent.http.client import HttpResponse
from agent.model import Secret
from agent.parsing import json_object
from agent.providers.gcp.trust import Trust
from agent.sanitize import quotes, repeatable, seconds

TROUBLED = frozenset({"RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL", "ABORTED", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN"})
TROUBLED |= {"temporarily_unavailable", "server_error", "slow_down"}
UNFETCHED = "error connecting to the given credential's issuer"
"""Google says `invalid_grant`, and this, where it could not reach the issuer just now."""
CLOCKS = "compare the clock of this machine with Google's"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    code: str
    words: str
    reason: str = ""
    """More exact than the code, where there is one."""


def sort(answer: HttpResponse, trust: Trust, *, whose: str, host: str, secrets: Sequence[Secret], now: datetime) -> RefreshError:
    """The failure to raise. Google's own words are repeated unless they repeat a secret."""
    refusal = _read(answer.body, secrets)
    message = f"{whose}: {host} answered {answer.status} {refusal.code or 'without a code'}{': ' if refusal.words else ''}{refusal.words}"
    unfetched = UNFETCHED in refusal.words.lower()
    if unfetched or refusal.code in TROUBLED or answer.status in {408, 429} or answer.status >= 500:
        remedy = (
            f"Google has to be able to fetch {trust.issuer}/.well-known/openid-configuration, or be given the keys" if unfetched else ""
        )
        return Unavailable(message, remedy=remedy, retry_after=seconds(answer.headers.get("Retry-After", ""), now))
    if not refusal.code:
        where = f"check provider.endpoint, provider.iamEndpoint and provider.proxy, and what stands before {host}"
        return Rejected(message, remedy=f"this was not Google: {where}")
    return Rejected(message, remedy=_remedy(refusal, trust))


def _read(body: bytes, secrets: Sequence[Secret]) -> _Refusal:
    document = json_object(body) or {}
    if "error" not in document:
        return _Refusal(code="", words="")
    error = document["error"]
    code, words, reason = error, document.get("error_description"), ""
    if isinstance(error, dict):
        code, words, reason = error.get("status"), error.get("message"), _reason(error)
    known = isinstance(code, str) and re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", code, re.ASCII) and not quotes(code, secrets)
    return _Refusal(code=str(code) if known else "", words=repeatable(words, secrets) if isinstance(words, str) else "", reason=reason)


def _reason(error: Mapping[str, Any]) -> str:
    details = error.get("details")
    reasons = [one.get("reason") for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    return next((reason for reason in reasons if isinstance(reason, str)), "")


def _remedy(refusal: _Refusal, trust: Trust) -> str:
    if refusal.code == "invalid_grant":
        return _mistrusted(refusal.words.lower(), trust)
    if refusal.code == "PERMISSION_DENIED" and (refusal.reason == "SERVICE_DISABLED" or "has not been used in project" in refusal.words):
        return "gcloud services enable iamcredentials.googleapis.com"
    remedies = {
        "invalid_target": f"create {trust.believer}, or enable it: there is no such pool or provider, or it is disabled",
        "invalid_request": f"check provider.workloadIdentityProvider ({trust.believer}) and provider.scopes",
        "invalid_scope": "check provider.scopes",
        "unauthorized_client": f"let the attribute condition of {trust.believer} accept the subject {trust.subject}",
        "PERMISSION_DENIED": trust.denied(),
        "NOT_FOUND": f"check provider.serviceAccount: there is no {trust.account}",
        "INVALID_ARGUMENT": "check provider.scopes, and provider.lifetime: more than 1h has to be allowed by the organisation's policy "
        "constraints/iam.allowServiceAccountCredentialLifetimeExtension",
        "UNAUTHENTICATED": CLOCKS,
    }
    return remedies.get(refusal.code, f"look up {refusal.code} in the troubleshooting guide of Workload Identity Federation")


def _mistrusted(words: str, trust: Trust) -> str:
    """`invalid_grant` is anything about the token: only the words say what."""
    audiences = ",".join(trust.audiences)
    if "audience" in words and trust.provider:
        update = trust.update(f"--allowed-audiences={audiences}")
        return f"project the token with the audience that {trust.provider} accepts, or type: {update}"
    if "stale" in words or "expired" in words or "issued at" in words or "future" in words:
        return f"{CLOCKS}, and check that the source gives a new token each time"
    if "issuer" in words and trust.provider:
        return f"type: {trust.update(f'--issuer-uri={trust.issuer}')}"
    if "sign" in words or "key" in words or "jwk" in words:
        return (
            f"Google has other keys of {trust.issuer} than the one that signed: let it fetch {trust.issuer}/jwks, or give it the keys again"
        )
    return f"check that {trust.believer} names the issuer {trust.issuer} and accepts the audience {audiences}; {CLOCKS}"
