"""The requests of an exchange as google-auth forms them, without letting it send any.

google-auth's refresh is synchronous: it calls its transport for each request and waits. The transport here has only the
answers that are already known. At the first request without an answer it raises; the agent sends that request over the
shared session and runs the refresh once more with the answer, until it comes to the next request. So no thread waits for a
network, and the loop is never blocked.

Running it again is harmless: each pass has new credential objects without memory of the pass before, no pass sends
anything, and the requests depend on the target, the token and the answers alone. The agent sends each request once, and
there are at most two.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.model import Secret
from agent.providers.gcp.targets import HOUR_SECONDS, Account, ExchangeTarget

JWT = "urn:ietf:params:oauth:token-type:jwt"
"""The type of an identity token (RFC 8693, section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleRequest:
    """A POST that the agent will send."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class _Pending(Exception):  # noqa: N818  # not an error: the way out of google-auth's calls
    def __init__(self, request: GoogleRequest) -> None:
        super().__init__()
        self.request = request


def access_token(target: ExchangeTarget, token: Secret, federated: Secret | None = None) -> GoogleRequest:
    """Return the request to the security token service, or, with its token, the request to act as the service account."""
    from google.auth import identity_pool, impersonated_credentials  # noqa: PLC0415  # 10 MiB, once an exchange is wanted

    credentials: Any = identity_pool.Credentials(  # type: ignore[no-untyped-call]
        audience=target.audience,
        subject_token_type=JWT,
        token_url=target.token_url,
        subject_token_supplier=_Supplier(token),
        scopes=list(target.scopes),
        universe_domain=target.universe,
    )
    if account := target.account:
        credentials = impersonated_credentials.Credentials(  # type: ignore[no-untyped-call]
            source_credentials=credentials,
            target_principal=account.email,
            target_scopes=list(target.scopes),
            delegates=account.delegate_names or None,
            lifetime=account.lifetime or HOUR_SECONDS,
            iam_endpoint_override=account.access_token_url,
        )
    try:
        credentials.refresh(_Transport(federated))
    except _Pending as pending:
        request = pending.request
    else:
        raise RuntimeError("google-auth formed fewer requests than an exchange takes")
    expected = account.access_token_url if account and federated else target.token_url
    if request.url != expected:
        raise RuntimeError("google-auth chose another URL than the configured one")
    return request


def id_token(account: Account, federated: Secret, audience: str) -> GoogleRequest:
    """Return the request for a Google-signed ID token. google-auth forms it only with a session of `requests`, so the agent does.

    https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateIdToken
    """
    wanted = {"audience": audience, "delegates": account.delegate_names, "includeEmail": True}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {federated.reveal()}"}
    return GoogleRequest(url=account.id_token_url, headers=headers, body=json.dumps(wanted).encode())


class _Supplier:
    """The part of a subject token supplier that google-auth uses: returns the token that it was made with."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    def get_subject_token(self, _context: object, _request: object) -> str:
        return self._token.reveal()


@dataclass(frozen=True, slots=True)
class _Known:
    """The part of a response that google-auth reads."""

    data: bytes = field(repr=False)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class _Transport:
    """The part of a `google.auth.transport.Request` that google-auth uses: called once for each request of a refresh."""

    def __init__(self, federated: Secret | None) -> None:
        self._known = [federated] if federated else []

    def __call__(self, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None, **_: object) -> _Known:
        if not self._known:
            raise _Pending(GoogleRequest(url=url, headers=dict(headers or {}), body=body))
        answer = {"access_token": self._known.pop().reveal(), "expires_in": HOUR_SECONDS}  # any lifetime does: it is used at once
        return _Known(json.dumps(answer).encode())
