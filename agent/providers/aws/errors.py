"""What STS says when it refuses, sorted by the reaction that it calls for.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html#API_AssumeRoleWithWebIdentity_Errors
https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from agent.errors import RefreshError, Rejected, Unavailable
from agent.model import Secret
from agent.sanitize import quotes, repeatable, seconds

THROTTLED = frozenset({"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequests", "TooManyRequestsException"})
THROTTLED |= {"RequestThrottled", "RequestThrottledException", "RequestLimitExceeded", "SlowDown"}
TROUBLED = frozenset({"ServiceUnavailable", "InternalFailure", "InternalError", "RequestTimeout", "IDPCommunicationError"})
UNSIGNED = "signature"
"""And this where it has the issuer's keys, and none of them has signed the token."""
UNFETCHED = "retrieve verification key"
"""AWS says InvalidIdentityToken, and this, also when it could not reach the issuer just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What was asked, as far as a remedy needs to know. Nothing secret."""

    role: str
    region: str
    issuer: str = ""
    subject: str = ""
    audiences: Sequence[str] = ()
    caller: str = ""
    """The role whose session asks, in a chain; empty for the first step."""
    external_id: bool = False
    tagged: bool = False


class ServiceError(Exception):
    """STS answered, with something else than credentials. Not for anybody above the provider."""

    def __init__(self, *, code: str, text: str, status: int, retry_after: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.text = text
        self.status = status
        self.retry_after = retry_after


def sort(refused: ServiceError, question: Attempt, *, whose: str, host: str, secrets: Sequence[Secret], now: datetime) -> RefreshError:
    """The failure to raise. AWS's own words are repeated unless they repeat a secret."""
    code = refused.code if re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", refused.code) and not quotes(refused.code, secrets) else ""
    words = repeatable(refused.text, secrets)
    message = f"{whose}: {host} answered {refused.status} {code or 'without a code'}{': ' if words else ''}{words}"
    code = code.removesuffix("Exception") if code not in THROTTLED else code
    unfetched = code == "IDPCommunicationError" or (code == "InvalidIdentityToken" and UNFETCHED in refused.text)
    if unfetched or code in THROTTLED | TROUBLED or refused.status in {408, 429} or refused.status >= 500:
        remedy = f"AWS has to be able to fetch {question.issuer}/.well-known/openid-configuration" if unfetched else ""
        return Unavailable(message, remedy=remedy, retry_after=seconds(refused.retry_after, now))
    if not code:
        return Rejected(message, remedy=f"this was not STS: check provider.endpoint and provider.proxy, and what stands before {host}")
    if code == "InvalidIdentityToken" and UNSIGNED in refused.text.lower():
        return Rejected(
            message,
            remedy=(
                f"the key that signed the token is not among those that {question.issuer} publishes, or AWS has older ones in its cache: "
                "publish a key before it signs, keep its kid for it alone, and let the source give a new token"
            ),
        )
    return Rejected(message, remedy=_remedies(question).get(code, f"look up {code} in the list of STS's common errors"))


def _remedies(question: Attempt) -> Mapping[str, str]:
    """By AWS's code without `Exception`."""
    issuer = question.issuer.partition("://")[2] or question.issuer
    audience = ", ".join(question.audiences)
    if question.caller:
        allow = f"let the trust policy of {question.role} allow sts:AssumeRole{' and sts:TagSession' if question.tagged else ''}"
        denied = f"{allow} to {question.caller}{', under the external ID of provider.chain' if question.external_id else ''}"
        denied += f", and a policy of {question.caller} allow the same"
    else:
        denied = (
            f"let the trust policy of {question.role} allow sts:AssumeRoleWithWebIdentity to the OIDC provider {issuer}"
            f" with {issuer}:aud = {audience} and {issuer}:sub = {question.subject}; a role that is not there is refused in the same words"
        )
    clocks = "compare the clock of this machine with AWS's"
    return {
        "AccessDenied": denied,
        "ExpiredToken": f"{clocks}, and check that the source gives a new token each time",
        "InvalidIdentityToken": f"create the IAM OIDC provider {issuer} with the audience {audience} in the account of {question.role}",
        "IDPRejectedClaim": f"check that the IAM OIDC provider {issuer} lists the audience {audience}, and the token's claims",
        "MalformedPolicyDocument": "correct provider.policy: it has to be an IAM policy as JSON",
        "PackedPolicyTooLarge": "shorten provider.policy, provider.policyArns or the session tags",
        "RegionDisabled": f"activate STS in {question.region} (IAM, account settings), or choose another provider.region",
        "ValidationError": "check provider.roleArn, sessionName, policyArns, and that the role allows sessions as long as duration",
        "InvalidClientTokenId": clocks,
        "SignatureDoesNotMatch": f"{clocks}, and that nothing on the way to AWS changes requests",
        "RequestExpired": clocks,
        "InvalidAction": "check provider.endpoint: what answers there is not STS",
    }
