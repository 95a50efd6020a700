"""The requests of an exchange as google-auth forms them, without it ever speaking to anybody.

google-auth's refresh is synchronous: it calls its transport for each request and waits. The transport here answers only
with what is known already. At the first request without an answer it raises; that request is sent over the shared
session, and then the refresh is gone through once more, with the answer at hand, until it comes to the next one. So no
thread waits for a network, and the loop is never held up.

Going through it again is harmless: each pass has new credential objects that know nothing of the pass before, nothing is
sent in a pass, and what google-auth forms depends on the errand, the token and the answers alone. Each request is sent
once, and there are at most two.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.model import Secret
from agent.providers.gcp.targets import HOUR, Account, ExchangeTarget

JWT = "urn:ietf:params:oauth:token-type:jwt"
"""What an identity token is to the service (RFC 8693, section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleRequest:
    """A POST that is to be sent."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class _Asked(Exception):  # noqa: N818  # no error: the way out of google-auth's calls
    def __init__(self, question: GoogleRequest) -> None:
        super().__init__()
        self.question = question


def access_token(target: ExchangeTarget, token: Secret, federated: Secret | None = None) -> GoogleRequest:
    """The request to the security token service, or, with what that gave, the one to act as the service account."""
    from google.auth import identity_pool, impersonated_credentials  # noqa: PLC0415  # 10 MiB, once an exchange is wanted

    credentials: Any = identity_pool.Credentials(  # type: ignore[no-untyped-call]
        audience=target.audience,
        subject_token_type=JWT,
        token_url=target.token_url,
        subject_token_supplier=_Held(token),
        scopes=list(target.scopes),
        universe_domain=target.universe,
    )
    if account := target.account:
        credentials = impersonated_credentials.Credentials(  # type: ignore[no-untyped-call]
            source_credentials=credentials,
            target_principal=account.email,
            target_scopes=list(target.scopes),
            delegates=account.delegate_names or None,
            lifetime=account.lifetime or HOUR,
            iam_endpoint_override=account.access_token_url,
        )
    try:
        credentials.refresh(_Transport(federated))
    except _Asked as asked:
        question = asked.question
    else:
        raise RuntimeError("google-auth asked for less than an exchange takes")
    expected = account.access_token_url if account and federated else target.token_url
    if question.url != expected:
        raise RuntimeError("google-auth chose another URL than the configured one")
    return question


def id_token(account: Account, federated: Secret, audience: str) -> GoogleRequest:
    """The request for a Google-signed ID token. google-auth forms it only together with a session of `requests`, so it is formed here.

    https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateIdToken
    """
    wanted = {"audience": audience, "delegates": account.delegate_names, "includeEmail": True}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {federated.reveal()}"}
    return GoogleRequest(url=account.id_token_url, headers=headers, body=json.dumps(wanted).encode())


class _Held:
    """A subject token supplier, as far as google-auth looks: it has the token in its hand."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    def get_subject_token(self, _context: object, _request: object) -> str:
        return self._token.reveal()


@dataclass(frozen=True, slots=True)
class _Known:
    """A response, as far as google-auth looks."""

    data: bytes = field(repr=False)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class _Transport:
    """A `google.auth.transport.Request`, as far as google-auth looks: called once for each request of a refresh."""

    def __init__(self, federated: Secret | None) -> None:
        self._known = [federated] if federated else []

    def __call__(self, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None, **_: object) -> _Known:
        if not self._known:
            raise _Asked(GoogleRequest(url=url, headers=dict(headers or {}), body=body))
        answer = {"access_token": self._known.pop().reveal(), "expires_in": HOUR}  # its clock is of no account: it is used at once
        return _Known(json.dumps(answer).encode())
