"""What Entra says when it refuses, sorted by the reaction that it calls for.

https://learn.microsoft.com/entra/identity-platform/reference-error-codes, which warns that codes are split over time
(70021 has become 700211, 700212, 700213, 7002137, 7002138): so what is not known is sorted by its status and by the
code that its own begins with.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from agent.errors import RefreshError, Rejected, Unavailable
from agent.model import Secret
from agent.sanitize import quotes, repeatable, seconds

UNFETCHED = frozenset({50166, 501661, 90061})
"""Request to External OIDC endpoint failed: Entra could not read what the issuer publishes just now."""
TROUBLED = frozenset({50196, 90006, 90012, 90020, 90024, 90025, 90033, 90055, 500341})
"""Throttling and trouble of its own, which Entra also answers with status 400."""
PASSING = frozenset({"temporarily_unavailable", "server_error"})
"""OAuth's words for the same (RFC 6749, section 4.1.2.1)."""
PASSAGES = re.compile(r"\s*(Trace ID|Correlation ID|Timestamp): .*$|Current time: [^,]*, |^AADSTS[0-9]+:\s*", re.DOTALL)
"""What differs from one answer to the next, or has been said: the same failure is told in the same words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What was asked, as far as a remedy needs to know. Nothing secret."""

    authority: str
    tenant: str
    client: str
    scope: str
    issuer: str
    subject: str
    audiences: Sequence[str]


class ServiceError(Exception):
    """Entra answered, with something else than a token. Not for anybody above the provider."""

    def __init__(self, *, status: int, error: str = "", number: int | None = None, text: str = "", retry_after: str = "") -> None:
        super().__init__(status)
        self.status = status
        self.error = error
        self.text = text
        self.retry_after = retry_after
        stated = re.match(r"AADSTS([0-9]{4,9})\b", text)
        self.number = int(stated[1]) if stated else number

    @property
    def code(self) -> str:
        """Entra's own, such as AADSTS700213, or OAuth's; empty where the answer has neither."""
        if self.number is not None:
            return f"AADSTS{self.number}"
        return self.error if re.fullmatch(r"[a-z_]{1,40}", self.error) else ""


def sort(refused: ServiceError, question: Attempt, *, whose: str, host: str, secrets: Sequence[Secret], now: datetime) -> RefreshError:
    """The failure to raise. Entra's own words are repeated unless they repeat a secret."""
    code = "" if quotes(refused.code, secrets) else refused.code
    words = PASSAGES.sub("", repeatable(" ".join(refused.text.split()), secrets)).strip() if code else ""
    message = f"{whose}: {host} answered {refused.status} {code or 'without a code'}{': ' if words else ''}{words}"
    unfetched = refused.number in UNFETCHED
    if unfetched or refused.number in TROUBLED or refused.error in PASSING or refused.status in {408, 429} or refused.status >= 500:
        remedy = f"Entra has to be able to fetch {question.issuer.rstrip('/')}/.well-known/openid-configuration" if unfetched else ""
        return Unavailable(message, remedy=remedy, retry_after=seconds(refused.retry_after, now))
    if not code:
        return Rejected(message, remedy=f"this was not Entra: check provider.endpoint and provider.proxy, and what stands before {host}")
    return Rejected(message, remedy=_remedy(refused.number, question))


def _remedy(number: int | None, question: Attempt) -> str:
    """By the longest beginning of the code that is known."""
    known, code = _remedies(question), str(number or "")
    for length in range(len(code), 4, -1):
        if code[:length] in known:
            return known[code[:length]]
    if number is None:
        return f"check provider.tenantId, provider.clientId and provider.authority: {question.authority} says no more"
    return f"look it up at {question.authority}/error?code={number}"


def _remedies(question: Attempt) -> Mapping[str, str]:
    audience = ", ".join(question.audiences)
    trusted = (
        f"give {question.client} a federated credential with the issuer {question.issuer}, the subject {question.subject} and the"
        f" audience {audience}: each is compared byte for byte, and a new one takes effect after some minutes"
    )
    clocks = "compare the clock of this machine, and of the token's issuer, with the right time"
    keys = f"{question.issuer.rstrip('/')}/.well-known/openid-configuration has to lead to the key that signed the token"
    scope = (
        f"correct provider.resources or provider.scopes: {question.scope} has to be a resource that the tenant knows,"
        " with /.default behind it in a scope"
    )
    client = f"correct provider.clientId: {question.client} is no application or managed identity of tenant {question.tenant}"
    disabled = f"enable the application {question.client} in tenant {question.tenant}"
    tenant = f"correct provider.tenantId, or provider.authority if {question.tenant} is in another cloud than {question.authority}"
    return {
        "70021": trusted,
        "700212": f"{trusted}; or name the audience of the credential in provider.audiences",
        "70025": trusted,
        "700222": "give the identity another source: Entra takes no token of its own for this",
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
        "50105": f"assign {question.client} to the application behind {question.scope}, which admits only whom it names",
        "53003": f"let Conditional Access for workload identities admit {question.client} from here",
        "7000215": "check provider.endpoint: what answers there wants a secret where a token was sent",
        "7000218": "check provider.endpoint: what answers there did not see the token that was sent",
    }
