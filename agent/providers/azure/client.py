"""A token for an access token: azure-identity's ClientAssertionCredential over the process's own HTTP session.

The credential caches its token until five minutes before the end, so each exchange makes a new credential. The agent
provides its whole pipeline: no retry, no redirect, no tracing, no log of requests, no proxy of the environment.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import urlencode

from agent.errors import RefreshError, Rejected, Unavailable, without_context
from agent.http.client import HttpClient, HttpResponse
from agent.model import Secret
from agent.parsing import json_object
from agent.providers.azure.errors import EntraError
from agent.providers.exchange import SIGN_IN_PAGE

MAX_TOKEN_CHARACTERS = 65536
"""More than any header may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The client, and the address that it asks."""

    authority: str
    """`https://` and the host under which Entra knows the tenant."""
    asked_at: str
    """The URL that receives the request, without the tenant; mostly the authority."""
    tenant: str
    client: str


async def exchange(client: HttpClient, application: Application, scope: str, assertion: Secret, *, whose: str) -> tuple[Secret, datetime]:
    """Return an access token and when it ends, UTC.

    Raise EntraError if Entra returns an error, else Unavailable or Rejected; neither the text nor the context repeats
    anything that was sent or received.
    """
    from azure.core.exceptions import AzureError  # noqa: PLC0415  # 19 MiB with the next two: msal, cryptography and requests
    from azure.core.pipeline.policies import ContentDecodePolicy  # noqa: PLC0415  # the same
    from azure.identity.aio import ClientAssertionCredential  # noqa: PLC0415  # the same

    for name in ("azure", "msal"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they would repeat the errors that the agent raises, and at DEBUG the requests
    credential = ClientAssertionCredential(
        application.tenant,
        application.client,
        assertion.reveal,
        authority=application.authority,
        disable_instance_discovery=True,
        transport=_Transport(client, application, whose),
        policies=[ContentDecodePolicy()],
    )
    with without_context():
        try:
            granted = await credential.get_token_info(scope)
            return Secret(granted.token), datetime.fromtimestamp(granted.expires_on, UTC)
        except (RefreshError, EntraError):
            raise
        except (AzureError, ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
            raise Unavailable(f"{whose}: azure-identity cannot use the answer ({type(error).__name__})") from None


class _Transport:
    """Replaces azure-core's AioHttpTransport, which reads answers of any size and repeats them in errors."""

    def __init__(self, client: HttpClient, application: Application, whose: str) -> None:
        self._client = client
        self._application = application
        self._whose = whose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Keep the session, which is shared."""

    async def send(self, request: Any, **_: Any) -> "_Response":
        """Send an `azure.core.rest.HttpRequest`; return what the SDK reads of a response."""
        path = f"/{self._application.tenant}/oauth2/v2.0/token"
        if (request.method, request.url) != ("POST", self._application.authority + path):
            raise Rejected(
                f"{self._whose}: the SDK chose another address than the configured one", remedy="this is a bug of the agent: report it"
            )
        answer = await self._client.send(
            "POST",
            self._application.asked_at + path,
            headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
            body=urlencode(request.content).encode(),
        )
        document = json_object(answer.body) or {}
        if answer.status != 200 or "error" in document:
            raise _service_error(answer, document)
        granted = _granted(document)
        if granted is None:
            raise Unavailable(
                f"{self._whose}: {self._application.asked_at.partition('://')[2]} answered 200 without a usable access token",
                remedy=SIGN_IN_PAGE,
            )
        return _Response(json.dumps(granted))


@dataclass(frozen=True, slots=True)
class _Response:
    """The part of a response that `ContentDecodePolicy` and the credential read."""

    _text: str
    status_code = 200
    content_type = "application/json"
    headers: Mapping[str, str] = None  # type: ignore[assignment]  # the SDK does not read them

    def text(self, encoding: str | None = None) -> str:  # the SDK's signature
        return self._text


def _granted(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the needed fields of a grant, so that no other field can upset the SDK; None if it is not a grant."""
    token = document.get("access_token")
    ends = {name: _whole(document[name]) for name in ("expires_in", "expires_on") if name in document}
    usable = (
        isinstance(token, str) and 0 < len(token) <= MAX_TOKEN_CHARACTERS and token.isascii() and token.isprintable() and " " not in token
    )
    if not usable or not ends or None in ends.values():
        return None
    return {"token_type": "Bearer", "access_token": token, **ends}


def _whole(value: object) -> int | None:
    """Return seconds, which Entra's older endpoints write as text; None if the value is invalid or absurd."""
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) < 16:
        return int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e15:
        return int(value)
    return None


def _service_error(answer: HttpResponse, document: Mapping[str, Any]) -> EntraError:
    codes = document.get("error_codes")
    number = codes[0] if isinstance(codes, list) and codes else None
    return EntraError(
        status=answer.status,
        error=str(document.get("error") or ""),
        number=number if isinstance(number, int) else None,
        text=str(document.get("error_description") or ""),
        retry_after=answer.headers.get("Retry-After", ""),
    )
