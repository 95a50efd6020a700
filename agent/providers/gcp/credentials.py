"""What Google gives: read from its answers, written to files, handed to the metadata dialect."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from agent.claims import read_token
from agent.errors import Rejected
from agent.model import Credential, Paths, Secret
from agent.parsing import json_object
from agent.providers.gcp.requests import JWT
from agent.providers.gcp.targets import ExchangeTarget

PRINTABLE = re.compile(r"[!-~]{1,16384}")
"""One line in a file, one header in a request."""
LONGEST = 10 * 366 * 86400.0
"""Seconds: a token that is said to live longer is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFile:
    """What an SDK needs to do the exchange itself. Holds no secret and no clock of its own."""

    target: ExchangeTarget
    config: Mapping[str, Any]
    """The allow-list of settings that the workload may see."""
    issued_at: datetime | None = None
    expires_at: datetime | None = None

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        """`credentialsFile` as `gcloud iam workload-identity-pools create-cred-config` writes it: source `file`, and one of two URLs.

        None where there are delegates: such a file cannot name them. https://google.aip.dev/auth/4117
        """
        files = {"config": Secret(json.dumps({**self.config, "audience": self.target.audience}))}
        account = self.target.account
        if account and account.delegates:
            return files
        external: dict[str, Any] = {
            "universe_domain": self.target.universe,
            "type": "external_account",
            "audience": self.target.audience,
            "subject_token_type": JWT,
            "token_url": self.target.token_url,
            "credential_source": {"file": paths.path("token"), "format": {"type": "text"}},
        }
        if account is None:
            external["token_info_url"] = self.target.introspection_url
        else:
            external["service_account_impersonation_url"] = account.access_token_url
            if account.lifetime:
                external["service_account_impersonation"] = {"token_lifetime_seconds": account.lifetime}
        return {**files, "credentialsFile": Secret(json.dumps(external, indent=2))}

    def document(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """An access token of the identity, or of its service account."""

    token: Secret
    issued_at: datetime
    expires_at: datetime
    scopes: Sequence[str]
    account: str
    """Email of the service account; empty where the identity acts as itself."""
    token_file: Credential

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        """`credentials` is the bare token, as gcloud's CLOUDSDK_AUTH_ACCESS_TOKEN_FILE takes it."""
        return {**self.token_file.files(paths), "credentials": self.token}

    def document(self) -> Mapping[str, Any]:
        return {
            "access_token": self.token,
            "token_type": "Bearer",
            "expires_at": self.expires_at,
            "scopes": tuple(self.scopes),
            "service_account": self.account,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class IdToken:
    """A Google-signed ID token of the service account, for one audience."""

    token: Secret
    issued_at: datetime
    expires_at: datetime
    audience: str
    account: str
    token_file: Credential

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        return self.token_file.files(paths)

    def document(self) -> Mapping[str, Any]:
        return {"id_token": self.token, "expires_at": self.expires_at, "audience": self.audience, "service_account": self.account}


def granted(body: bytes, asked_at: datetime) -> tuple[Secret, datetime] | None:
    """The access token in an answer and when it ends, UTC; None where anything of it is missing, garbled or absurd.

    Both spellings: `expires_in` counts from when the service was asked, so that it is never later than the truth.
    """
    answer = json_object(body) or {}
    token = access_token(answer.get("access_token", answer.get("accessToken")))
    if token is None:
        return None
    expires_at = _after(answer["expires_in"], asked_at) if "expires_in" in answer else _moment(answer.get("expireTime"))
    return (token, expires_at) if expires_at and expires_at - asked_at <= timedelta(seconds=LONGEST) else None


def granted_id_token(body: bytes, asked_at: datetime) -> tuple[Secret, datetime] | None:
    """The ID token in an answer and when it ends, UTC, as it says itself; None as above."""
    text = (json_object(body) or {}).get("token")
    if not isinstance(text, str):
        return None
    try:
        token = read_token(text, whose="", now=asked_at)
    except Rejected:
        return None
    return (token.value, token.expires_at) if token.expires_at - asked_at <= timedelta(seconds=LONGEST) else None


def access_token(text: object) -> Secret | None:
    """The text as a token that can be written as one line and sent in a header; None where it cannot."""
    return Secret(text) if isinstance(text, str) and PRINTABLE.fullmatch(text) else None


def _after(seconds: object, start: datetime) -> datetime | None:
    """Some services write the number as text, as google-auth knows."""
    if isinstance(seconds, str) and re.fullmatch(r"-?[0-9]{1,12}", seconds, re.ASCII):
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not -LONGEST <= seconds <= LONGEST:
        return None
    return start + timedelta(seconds=seconds)


def _moment(text: object) -> datetime | None:
    """RFC 3339, as protocol buffers write a Timestamp: always in UTC, with or without a fraction."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9-]{10}T[0-9:]{8}(\.[0-9]{1,9})?Z", text, re.ASCII):
        return None
    try:
        return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC)
    except ValueError:
        return None
