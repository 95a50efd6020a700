"""What is to be had from Google for a token, and where it is asked for. Nothing secret.

https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token
https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken
"""

from collections.abc import Sequence
from dataclasses import dataclass

NAME = "projects/-/serviceAccounts/"
"""Before an email: IAM's name of a service account, whatever its project."""
HOUR = 3600
"""Seconds: how long a service account's token lives unless somebody asks for something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The service account to act as, at the end of those that act for one another on the way."""

    email: str
    base: str
    """Of the IAM Service Account Credentials API: scheme and host."""
    delegates: Sequence[str] = ()
    """Emails, from the one that the identity may act as."""
    lifetime: int | None = None
    """Seconds; None leaves it to Google: one hour."""

    @property
    def access_token_url(self) -> str:
        return f"{self.base}/v1/{NAME}{self.email}:generateAccessToken"

    @property
    def id_token_url(self) -> str:
        return f"{self.base}/v1/{NAME}{self.email}:generateIdToken"

    @property
    def delegate_names(self) -> list[str]:
        """As the API takes them."""
        return [f"{NAME}{email}" for email in self.delegates]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeTarget:
    """An exchange of an identity token for an access token."""

    base: str
    """Of the security token service: scheme and host."""
    audience: str
    """The workload identity provider, as the service names it; not the token's own audience, which may be written otherwise."""
    universe: str
    scopes: Sequence[str]
    account: Account | None = None
    """None: the identity itself is what Google's policies name."""

    @property
    def token_url(self) -> str:
        return f"{self.base}/v1/token"

    @property
    def introspection_url(self) -> str:
        return f"{self.base}/v1/introspect"
