"""The errors of Google, sorted by the reaction that each calls for.

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
"""In the text of an `invalid_grant` if Google could not reach the issuer just now."""
CLOCKS = "compare the clock of this machine with Google's"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Error:
    code: str
    words: str
    reason: str = ""
    """More exact than the code; empty if there is none."""


def sort(answer: HttpResponse, trust: Trust, *, whose: str, host: str, secrets: Sequence[Secret], now: datetime) -> RefreshError:
    """Return the failure to raise. It repeats Google's own words unless they repeat a secret."""
    error = _read(answer.body, secrets)
    message = f"{whose}: {host} answered {answer.status} {error.code or 'without a code'}{': ' if error.words else ''}{error.words}"
    unfetched = UNFETCHED in error.words.lower()
    if unfetched or error.code in TROUBLED or answer.status in {408, 429} or answer.status >= 500:
        remedy = (
            f"let Google fetch {trust.issuer}/.well-known/openid-configuration, or upload the keys to {trust.believer}" if unfetched else ""
        )
        return Unavailable(message, remedy=remedy, retry_after=seconds(answer.headers.get("Retry-After", ""), now))
    if not error.code:
        where = f"check provider.endpoint, provider.iamEndpoint and provider.proxy, and any gateway in front of {host}"
        return Rejected(message, remedy=f"this was not Google: {where}")
    return Rejected(message, remedy=_remedy(error, trust))


def _read(body: bytes, secrets: Sequence[Secret]) -> _Error:
    document = json_object(body) or {}
    if "error" not in document:
        return _Error(code="", words="")
    error = document["error"]
    code, words, reason = error, document.get("error_description"), ""
    if isinstance(error, dict):
        code, words, reason = error.get("status"), error.get("message"), _reason(error)
    known = isinstance(code, str) and re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", code, re.ASCII) and not quotes(code, secrets)
    return _Error(code=str(code) if known else "", words=repeatable(words, secrets) if isinstance(words, str) else "", reason=reason)


def _reason(error: Mapping[str, Any]) -> str:
    details = error.get("details")
    reasons = [one.get("reason") for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    return next((reason for reason in reasons if isinstance(reason, str)), "")


def _remedy(error: _Error, trust: Trust) -> str:
    if error.code == "invalid_grant":
        return _mistrusted(error.words.lower(), trust)
    if error.code == "PERMISSION_DENIED" and (error.reason == "SERVICE_DISABLED" or "has not been used in project" in error.words):
        return "gcloud services enable iamcredentials.googleapis.com"
    remedies = {
        "invalid_target": f"create {trust.believer}, or enable it: Google reports that the pool or provider does not exist or is disabled",
        "invalid_request": f"check provider.workloadIdentityProvider ({trust.believer}) and provider.scopes",
        "invalid_scope": "check provider.scopes",
        "unauthorized_client": f"let the attribute condition of {trust.believer} accept the subject {trust.subject}",
        "PERMISSION_DENIED": trust.denied(),
        "NOT_FOUND": f"check provider.serviceAccount: {trust.account} does not exist",
        "INVALID_ARGUMENT": "check provider.scopes, and provider.lifetime: more than 1h needs the organisation's policy "
        "constraints/iam.allowServiceAccountCredentialLifetimeExtension",
        "UNAUTHENTICATED": CLOCKS,
    }
    return remedies.get(error.code, f"look up {error.code} in the troubleshooting guide of Workload Identity Federation")


def _mistrusted(words: str, trust: Trust) -> str:
    """Return the remedy of `invalid_grant`, which covers every fault of the token: only the words tell them apart."""
    audiences = ",".join(trust.audiences)
    if "audience" in words and trust.provider:
        update = trust.update(f"--allowed-audiences={audiences}")
        return f"project the token with the audience that {trust.provider} accepts, or run: {update}"
    if "stale" in words or "expired" in words or "issued at" in words or "future" in words:
        return f"{CLOCKS}, and check that the source gives a new token each time"
    if "issuer" in words and trust.provider:
        return f"run: {trust.update(f'--issuer-uri={trust.issuer}')}"
    if "sign" in words or "key" in words or "jwk" in words:
        return (
            f"Google does not have the key of {trust.issuer} that signed the token: let it fetch {trust.issuer}/jwks,"
            " or upload the keys again"
        )
    return f"check that {trust.believer} names the issuer {trust.issuer} and accepts the audience {audiences}; {CLOCKS}"
