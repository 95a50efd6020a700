"""The errors of AWS STS, sorted by the reaction that each calls for.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html#API_AssumeRoleWithWebIdentity_Errors
https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from agent.errors import RefreshError, Rejected, Unavailable
from agent.model import Secret
from agent.providers.exchange import ServiceError, TokenFacts
from agent.sanitize import quotes, repeatable, seconds

THROTTLED = frozenset({"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequests", "TooManyRequestsException"})
THROTTLED |= {"RequestThrottled", "RequestThrottledException", "RequestLimitExceeded", "SlowDown"}
TROUBLED = frozenset({"ServiceUnavailable", "InternalFailure", "InternalError", "RequestTimeout", "IDPCommunicationError"})
UNFETCHED = "retrieve verification key"
"""In the text of an InvalidIdentityToken if AWS could not reach the issuer just now."""
UNSIGNED = "signature"
"""In the text of an InvalidIdentityToken if AWS has the issuer's keys and none of them signed the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(TokenFacts):
    """What a remedy needs to know of the request. Nothing secret."""

    role: str
    region: str
    caller: str = ""
    """The role whose session signs the request, in a chain; empty for the first step."""
    external_id: bool = False
    tagged: bool = False


def sort(refused: ServiceError, attempt: Attempt, *, whose: str, host: str, secrets: Sequence[Secret], now: datetime) -> RefreshError:
    """Return the failure to raise. It repeats AWS's own words unless they repeat a secret."""
    code = refused.code if re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", refused.code) and not quotes(refused.code, secrets) else ""
    words = repeatable(refused.text, secrets)
    message = f"{whose}: {host} answered {refused.status} {code or 'without a code'}{': ' if words else ''}{words}"
    code = code.removesuffix("Exception") if code not in THROTTLED else code
    unfetched = code == "IDPCommunicationError" or (code == "InvalidIdentityToken" and UNFETCHED in refused.text)
    if unfetched or code in THROTTLED | TROUBLED or refused.transient:
        remedy = f"let AWS fetch {attempt.issuer}/.well-known/openid-configuration" if unfetched else ""
        return Unavailable(message, remedy=remedy, retry_after=seconds(refused.retry_after, now))
    if not code:
        return Rejected(message, remedy=f"this was not STS: check provider.endpoint and provider.proxy, and any gateway in front of {host}")
    if code == "InvalidIdentityToken" and UNSIGNED in refused.text.lower():
        return Rejected(
            message,
            remedy=(
                f"{attempt.issuer} does not publish the key that signed the token, or AWS has older keys in its cache: "
                "publish a key before it signs, never reuse its kid, and let the source give a new token"
            ),
        )
    return Rejected(message, remedy=_remedies(attempt).get(code, f"look up {code} in the list of STS's common errors"))


def _remedies(attempt: Attempt) -> Mapping[str, str]:
    """Return the remedies by AWS's code without `Exception`."""
    issuer = attempt.issuer.partition("://")[2] or attempt.issuer
    audience = ", ".join(attempt.audiences)
    if attempt.caller:
        allow = f"let the trust policy of {attempt.role} allow sts:AssumeRole{' and sts:TagSession' if attempt.tagged else ''}"
        denied = f"{allow} to {attempt.caller}{', under the external ID of provider.chain' if attempt.external_id else ''}"
        denied += f", and a policy of {attempt.caller} allow the same"
    else:
        denied = (
            f"let the trust policy of {attempt.role} allow sts:AssumeRoleWithWebIdentity to the OIDC provider {issuer}"
            f" with {issuer}:aud = {audience} and {issuer}:sub = {attempt.subject}; AWS refuses a missing role in the same words"
        )
    clocks = "compare the clock of this machine with AWS's"
    return {
        "AccessDenied": denied,
        "ExpiredToken": f"{clocks}, and check that the source gives a new token each time",
        "InvalidIdentityToken": f"create the IAM OIDC provider {issuer} with the audience {audience} in the account of {attempt.role}",
        "IDPRejectedClaim": f"check that the IAM OIDC provider {issuer} lists the audience {audience}, and the token's claims",
        "MalformedPolicyDocument": "correct provider.policy: it must be an IAM policy as JSON",
        "PackedPolicyTooLarge": "shorten provider.policy, provider.policyArns or the session tags",
        "RegionDisabled": f"activate STS in {attempt.region} (IAM, account settings), or choose another provider.region",
        "ValidationError": "check provider.roleArn, sessionName, policyArns, and that the role allows sessions as long as duration",
        "InvalidClientTokenId": clocks,
        "SignatureDoesNotMatch": f"{clocks}, and check that no proxy on the way to AWS changes requests",
        "RequestExpired": clocks,
        "InvalidAction": "check provider.endpoint: the server there is not STS",
    }
