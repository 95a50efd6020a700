"""The tokens that Google grants for an identity token, and the addresses that grant them. Nothing secret.

https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token
https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken
"""

from collections.abc import Sequence
from dataclasses import dataclass

ACCOUNT_PREFIX = "projects/-/serviceAccounts/"
"""Before an email: IAM's name of a service account in any project."""
HOUR_SECONDS = 3600
"""The default lifetime of a service account's token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The service account to act as, at the end of the chain of delegates."""

    email: str
    base: str
    """Of the IAM Service Account Credentials API: scheme and host."""
    delegates: Sequence[str] = ()
    """Emails, starting with the service account that the identity may act as."""
    lifetime: int | None = None
    """Seconds; None leaves it to Google: one hour."""

    @property
    def access_token_url(self) -> str:
        return f"{self.base}/v1/{ACCOUNT_PREFIX}{self.email}:generateAccessToken"

    @property
    def id_token_url(self) -> str:
        return f"{self.base}/v1/{ACCOUNT_PREFIX}{self.email}:generateIdToken"

    @property
    def delegate_names(self) -> list[str]:
        """The delegates in the form that the API takes."""
        return [f"{ACCOUNT_PREFIX}{email}" for email in self.delegates]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeTarget:
    """An exchange of an identity token for an access token."""

    base: str
    """Of the security token service: scheme and host."""
    audience: str
    """The workload identity provider, as the service names it; the token's own audience may be written in another form."""
    universe: str
    scopes: Sequence[str]
    account: Account | None = None
    """None: Google's policies name the identity itself."""

    @property
    def token_url(self) -> str:
        return f"{self.base}/v1/token"

    @property
    def introspection_url(self) -> str:
        return f"{self.base}/v1/introspect"
