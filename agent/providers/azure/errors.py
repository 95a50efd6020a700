"""The errors of Entra ID, sorted by the reaction that each calls for.

https://learn.microsoft.com/entra/identity-platform/reference-error-codes, which warns that codes are split over time
(70021 has become 700211, 700212, 700213, 7002137, 7002138): so an unknown code is sorted by its status and by the known
code that it begins with.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from agent.errors import RefreshError, Rejected, Unavailable
from agent.model import Secret
from agent.providers.exchange import ServiceError, TokenFacts
from agent.sanitize import quotes, repeatable, seconds

UNFETCHED = frozenset({50166, 501661, 90061})
"""Request to External OIDC endpoint failed: Entra could not read what the issuer publishes just now."""
TROUBLED = frozenset({50196, 90006, 90012, 90020, 90024, 90025, 90033, 90055, 500341})
"""Throttling and faults of Entra's own, which Entra also answers with status 400."""
PASSING = frozenset({"temporarily_unavailable", "server_error"})
"""OAuth's words for the same (RFC 6749, section 4.1.2.1)."""
PASSAGES = re.compile(r"\s*(Trace ID|Correlation ID|Timestamp): .*$|Current time: [^,]*, |^AADSTS[0-9]+:\s*", re.DOTALL)
"""What differs from one answer to the next, or repeats the code: the same failure keeps the same words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(TokenFacts):
    """What a remedy needs to know of the request. Nothing secret."""

    authority: str
    tenant: str
    client: str
    scope: str


class EntraError(ServiceError):
    """Entra returned an error. `code` is Entra's own, such as AADSTS700213, or OAuth's; empty if the answer has neither."""

    def __init__(self, *, status: int, error: str = "", number: int | None = None, text: str = "", retry_after: str = "") -> None:
        stated = re.match(r"AADSTS([0-9]{4,9})\b", text)
        self.number = int(stated[1]) if stated else number
        self.error = error
        known = error if re.fullmatch(r"[a-z_]{1,40}", error) else ""
        code = known if self.number is None else f"AADSTS{self.number}"
        super().__init__(code=code, text=text, status=status, retry_after=retry_after)


def sort(refused: EntraError, attempt: Attempt, *, whose: str, host: str, secrets: Sequence[Secret], now: datetime) -> RefreshError:
    """Return the failure to raise. It repeats Entra's own words unless they repeat a secret."""
    code = "" if quotes(refused.code, secrets) else refused.code
    words = PASSAGES.sub("", repeatable(" ".join(refused.text.split()), secrets)).strip() if code else ""
    message = f"{whose}: {host} answered {refused.status} {code or 'without a code'}{': ' if words else ''}{words}"
    unfetched = refused.number in UNFETCHED
    if unfetched or refused.number in TROUBLED or refused.error in PASSING or refused.transient:
        remedy = f"let Entra fetch {attempt.issuer.rstrip('/')}/.well-known/openid-configuration" if unfetched else ""
        return Unavailable(message, remedy=remedy, retry_after=seconds(refused.retry_after, now))
    if not code:
        return Rejected(
            message, remedy=f"this was not Entra: check provider.endpoint and provider.proxy, and any gateway in front of {host}"
        )
    return Rejected(message, remedy=_remedy(refused.number, attempt))


def _remedy(number: int | None, attempt: Attempt) -> str:
    """Return the remedy of the longest known code that this code begins with."""
    known, code = _remedies(attempt), str(number or "")
    for length in range(len(code), 4, -1):
        if code[:length] in known:
            return known[code[:length]]
    if number is None:
        return f"check provider.tenantId, provider.clientId and provider.authority: {attempt.authority} gives no further reason"
    return f"look it up at {attempt.authority}/error?code={number}"


def _remedies(attempt: Attempt) -> Mapping[str, str]:
    audience = ", ".join(attempt.audiences)
    trusted = (
        f"give {attempt.client} a federated credential with the issuer {attempt.issuer}, the subject {attempt.subject} and the"
        f" audience {audience}: Entra compares each byte for byte, and a new one takes effect after some minutes"
    )
    clocks = "compare the clock of this machine, and of the token's issuer, with the right time"
    keys = f"let {attempt.issuer.rstrip('/')}/.well-known/openid-configuration lead to the key that signed the token"
    scope = (
        f"correct provider.resources or provider.scopes: {attempt.scope} must be a resource that the tenant knows,"
        " with /.default behind it in a scope"
    )
    client = f"correct provider.clientId: {attempt.client} is not an application or managed identity of tenant {attempt.tenant}"
    disabled = f"enable the application {attempt.client} in tenant {attempt.tenant}"
    tenant = f"correct provider.tenantId, or provider.authority if {attempt.tenant} is in another cloud than {attempt.authority}"
    return {
        "70021": trusted,
        "700212": f"{trusted}; or name the audience of the credential in provider.audiences",
        "70025": trusted,
        "700222": "give the identity another source: Entra does not accept its own tokens for this",
        "700024": clocks,
        "500133": clocks,
        "50013": f"{keys}; {clocks}",
        "700027": keys,
        "700016": client,
        "7000112": disabled,
        "7000113": disabled,
        "500014": disabled,
        "90002": tenant,
        "900023": tenant,
        "900382": tenant,
        "50020": tenant,
        "70011": scope,
        "500011": scope,
        "1002012": scope,
        "50105": f"assign {attempt.client} to the application behind {attempt.scope}, which admits only the clients that it names",
        "53003": f"let Conditional Access for workload identities admit {attempt.client} from this address",
        "7000215": "check provider.endpoint: the server there wants a client secret instead of the token that was sent",
        "7000218": "check provider.endpoint: the server there did not receive the token that was sent",
    }
