"""The tokens of Google: read from its answers, as files hold them, as the metadata dialect serves them."""

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
from agent.providers.exchange import MAX_LIFETIME, TokenFileCredential
from agent.providers.gcp.requests import JWT
from agent.providers.gcp.targets import ExchangeTarget

PRINTABLE = re.compile(r"[!-~]{1,16384}")
"""One line in a file, one header in a request."""


def token_file(target: ExchangeTarget, config: Mapping[str, Any]) -> TokenFileCredential:
    """Return the files for an SDK that does the exchange itself. `config`: the settings that the workload may see.

    `credentialsFile` as `gcloud iam workload-identity-pools create-cred-config` writes it: source `file`, and one of two
    URLs. None if there are delegates: such a file cannot name them. https://google.aip.dev/auth/4117
    """

    def files(paths: Paths) -> Mapping[str, Secret]:
        shown = {"config": Secret(json.dumps({**config, "audience": target.audience}))}
        account = target.account
        if account and account.delegates:
            return shown
        external: dict[str, Any] = {
            "universe_domain": target.universe,
            "type": "external_account",
            "audience": target.audience,
            "subject_token_type": JWT,
            "token_url": target.token_url,
            "credential_source": {"file": paths.path("token"), "format": {"type": "text"}},
        }
        if account is None:
            external["token_info_url"] = target.introspection_url
        else:
            external["service_account_impersonation_url"] = account.access_token_url
            if account.lifetime:
                external["service_account_impersonation"] = {"token_lifetime_seconds": account.lifetime}
        return {**shown, "credentialsFile": Secret(json.dumps(external, indent=2))}

    return TokenFileCredential(files)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """An access token of the identity, or of its service account."""

    token: Secret
    issued_at: datetime
    expires_at: datetime
    scopes: Sequence[str]
    account: str
    """Email of the service account; empty if the identity acts as itself."""
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
    """Return the access token in an answer and when it ends, UTC; None if any of it is missing, garbled or absurd.

    Both spellings: `expires_in` counts from the time of the request, so the result is never later than the true end.
    """
    answer = json_object(body) or {}
    token = access_token(answer.get("access_token", answer.get("accessToken")))
    if token is None:
        return None
    expires_at = _after(answer["expires_in"], asked_at) if "expires_in" in answer else _moment(answer.get("expireTime"))
    return (token, expires_at) if expires_at and expires_at - asked_at <= MAX_LIFETIME else None


def granted_id_token(body: bytes, asked_at: datetime) -> tuple[Secret, datetime] | None:
    """Return the ID token in an answer and when it ends, UTC, as its own claim says; None as above."""
    text = (json_object(body) or {}).get("token")
    if not isinstance(text, str):
        return None
    try:
        token = read_token(text, whose="", now=asked_at)
    except Rejected:
        return None
    return (token.value, token.expires_at) if token.expires_at - asked_at <= MAX_LIFETIME else None


def access_token(text: object) -> Secret | None:
    """Return the text as a token that fits in one line and in a header; None if it does not."""
    return Secret(text) if isinstance(text, str) and PRINTABLE.fullmatch(text) else None


def _after(seconds: object, start: datetime) -> datetime | None:
    """Return the end. Some services write the number as text, which google-auth also accepts."""
    if isinstance(seconds, str) and re.fullmatch(r"-?[0-9]{1,12}", seconds, re.ASCII):
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) <= MAX_LIFETIME.total_seconds():
        return None
    return start + timedelta(seconds=seconds)


def _moment(text: object) -> datetime | None:
    """Return a time in RFC 3339 as protocol buffers write a Timestamp: in UTC, with or without a fraction. None if it is not one."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9-]{10}T[0-9:]{8}(\.[0-9]{1,9})?Z", text, re.ASCII):
        return None
    try:
        return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC)
    except ValueError:
        return None
