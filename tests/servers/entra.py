"""An Entra ID that verifies: tokens against their issuer's published keys, and against the federated credentials it was given.

Speaks `/{tenant}/oauth2/v2.0/token` of https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow
with Entra's statuses, codes and words, as far as they are on record; what this refuses is the only proof that the agent
and the SDKs send the right thing.
"""

import asyncio
import secrets
import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import jwt
from aiohttp import web

from tests.servers.site import Site

TENANT = "72f988bf-86f1-41af-91ab-2d7cd011db47"
CLIENT = "499b84ac-1321-427f-aa17-267ca6975798"
AUDIENCE = "api://AzureADTokenExchange"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
UNMATCHED = "No matching federated identity record found for presented assertion"
CHECK = "Check your federated identity credential Subject, Audience and Issuer against the presented assertion."
RESOURCES = ("https://management.azure.com", "https://vault.azure.net", "https://storage.azure.com", "https://eventhubs.azure.net/")


@dataclass(frozen=True)
class Federated:
    """A federated credential of an application."""

    issuer: str
    subject: str
    audience: str = AUDIENCE
    documents: str = ""
    """Where the issuer's documents really are, for an issuer whose URL nobody answers."""


class RefusalError(Exception):
    """As Entra answers it."""

    def __init__(self, number: int, message: str, *, status: int = 401, error: str = "invalid_client") -> None:
        super().__init__(number)
        self.number = number
        self.message = message
        self.status = status
        self.error = error


class Entra(Site):
    """Grants access tokens; its attributes say how it behaves, at any time."""

    def __init__(
        self, trust: Mapping[str, Federated], *, tls: ssl.SSLContext | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """`trust`: each client's federated credential."""
        super().__init__(tls)
        self.trust = dict(trust)
        self.now = now
        self.tolerance = 0.0
        """Seconds by which a token's times may be wrong."""
        self.lifetime: float = 3599
        """Seconds granted."""
        self.generations: int | None = None
        """Of a subject's tokens, the newest so many are accepted; None accepts all that have not expired."""
        self.delay = 0.0
        """Seconds before each answer."""
        self.instead: Callable[[web.BaseRequest], web.StreamResponse] | None = None
        """Answers in place of Entra; see the functions below."""
        self.hanging = False
        self.parameters: list[dict[str, str]] = []
        """Of each token request, without the assertion."""
        self.paths: list[str] = []
        """Of each request of any kind."""
        self.presented: list[str] = []
        """The `jti` of each assertion that was believed."""
        self.granted: dict[str, str] = {}
        """The resource by access token."""
        self._seen: defaultdict[str, set[float]] = defaultdict(set)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.paths.append(request.path)
        if self.hanging:
            await asyncio.Event().wait()
        await asyncio.sleep(self.delay)
        tenant, _, rest = request.path.lstrip("/").partition("/")
        if rest == "v2.0/.well-known/openid-configuration":
            return web.json_response(
                {
                    "issuer": f"{self.url}/{tenant}/v2.0",
                    "token_endpoint": f"{self.url}/{tenant}/oauth2/v2.0/token",
                    "authorization_endpoint": f"{self.url}/{tenant}/oauth2/v2.0/authorize",
                    "jwks_uri": f"{self.url}/{tenant}/discovery/v2.0/keys",
                }
            )
        if request.method != "POST" or rest != "oauth2/v2.0/token":
            return web.Response(status=404)
        form = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        self.parameters.append({name: value for name, value in form.items() if name != "client_assertion"})
        if self.instead:
            return self.instead(request)
        try:
            return web.json_response(await self._granted(tenant, form))
        except RefusalError as refusal:
            return refuse(refusal.status, refusal.number, refusal.message, refusal.error)(request)

    async def _granted(self, tenant: str, form: Mapping[str, str]) -> dict[str, Any]:
        if tenant != TENANT:
            raise RefusalError(
                90002,
                f"Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud.",
                status=400,
                error="invalid_request",
            )
        client = form.get("client_id", "")
        if client not in self.trust:
            raise RefusalError(
                700016,
                f"Application with identifier '{client}' was not found in the directory 'Contoso'. This can happen if "
                "the application has not been installed by the administrator of the tenant.",
                status=400,
                error="unauthorized_client",
            )
        if form.get("grant_type") != "client_credentials" or form.get("client_assertion_type") != ASSERTION:
            raise RefusalError(7000218, "The request body must contain the following parameter: 'client_assertion' or 'client_secret'.")
        claims = await self._verified(form.get("client_assertion", ""), self.trust[client])
        scope = form.get("scope", "")
        resource = scope.removesuffix("/.default")
        if resource == scope or resource not in RESOURCES:
            raise RefusalError(
                500011,
                f"The resource principal named {resource} was not found in the tenant named Contoso.",
                status=400,
                error="invalid_resource",
            )
        self.presented.append(str(claims.get("jti", "")))
        token = secrets.token_urlsafe(60)
        self.granted[token] = resource
        return {"token_type": "Bearer", "expires_in": int(self.lifetime), "ext_expires_in": int(self.lifetime), "access_token": token}

    async def _verified(self, token: str, trusted: Federated) -> dict[str, Any]:
        try:
            header, unverified = jwt.get_unverified_header(token), jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError:
            raise RefusalError(50027, "JWT token is invalid or malformed.", status=400, error="invalid_request") from None
        if unverified.get("iss") != trusted.issuer:
            raise _unmatched(700211, "issuer", unverified.get("iss"))
        if unverified.get("sub") != trusted.subject:
            raise _unmatched(700213, "subject", unverified.get("sub"))
        audiences = unverified["aud"] if isinstance(unverified.get("aud"), list) else [unverified.get("aud")]
        if audiences != [trusted.audience]:
            raise _unmatched(700212, "audience", audiences[0])
        keys = await self._keys(trusted)
        try:
            key = next(one for one in keys if one.key_id == header.get("kid"))
            options: Any = {"verify_exp": False, "verify_aud": False, "verify_iat": False, "verify_nbf": False}
            claims: dict[str, Any] = jwt.decode(token, key, algorithms=["RS256", "ES256"], options=options)
        except (StopIteration, jwt.PyJWTError):
            raise RefusalError(
                7000272,
                f"The certificate with identifier {header.get('kid')} used to sign the federated credential could not be "
                f"found in the metadata of identity provider {trusted.issuer}.",
            ) from None
        now = self.now().timestamp()
        if not claims.get("nbf", claims["iat"]) - self.tolerance <= now < claims["exp"] + self.tolerance:
            raise RefusalError(
                700024,
                f"Client assertion is not within its valid time range. Current time: {self.now():%Y-%m-%dT%H:%M:%S}Z, "
                f"assertion valid from {_moment(claims['iat'])}, expiry time of assertion {_moment(claims['exp'])}.",
            )
        seen = self._seen[claims["sub"]]
        seen.add(claims["iat"])
        if self.generations is not None and claims["iat"] not in sorted(seen)[-self.generations :]:
            raise RefusalError(700024, "Client assertion is not within its valid time range. Newer ones have been seen.")
        return claims

    async def _keys(self, trusted: Federated) -> list[Any]:
        """What the issuer publishes, fetched each time."""
        where = trusted.documents or trusted.issuer
        try:
            async with aiohttp.ClientSession(raise_for_status=True, timeout=aiohttp.ClientTimeout(total=2)) as http:
                async with http.get(f"{where}/.well-known/openid-configuration") as response:
                    document = await response.json()
                if document["issuer"] != trusted.issuer:
                    raise RefusalError(700211, "The issuer in the discovery document is another")
                async with http.get(document["jwks_uri"].replace(trusted.issuer, where)) as response:
                    return list(jwt.PyJWKSet.from_dict(await response.json()).keys)
        except (aiohttp.ClientError, TimeoutError, KeyError, ValueError, jwt.PyJWTError):
            raise RefusalError(50166, "Request to External OIDC endpoint failed.", status=400, error="invalid_request") from None


def _unmatched(number: int, what: str, value: object) -> RefusalError:
    return RefusalError(number, f"{UNMATCHED} {what} '{value}'. {CHECK}")


def refuse(
    status: int, number: int, message: str = "", error: str = "invalid_client", **headers: str
) -> Callable[[web.BaseRequest], web.StreamResponse]:
    """An error as Entra words it, with the marks by which no two are alike; `Retry_After="7"` is a header."""
    trace, moment = secrets.token_hex(16), f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}.{time.monotonic_ns() % 1000}Z"
    text = f"AADSTS{number}: {message} Trace ID: {trace} Correlation ID: {trace} Timestamp: {moment}"
    document = {
        "error": error,
        "error_description": text,
        "error_codes": [number],
        "timestamp": moment,
        "trace_id": trace,
        "correlation_id": trace,
        "error_uri": f"https://login.microsoftonline.com/error?code={number}",
    }
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: web.json_response(document, status=status, headers=named)


def page(status: int, text: str, kind: str = "text/html", **headers: str) -> Callable[[web.BaseRequest], web.StreamResponse]:
    """Something that is not Entra: a sign-in page, garbage, a redirect with `Location=…`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: web.Response(status=status, text=text, headers=named, content_type=kind)


def grant(**fields: Any) -> Callable[[web.BaseRequest], web.StreamResponse]:
    """A grant of this content; a field of None is left out."""
    whole = {"token_type": "Bearer", "expires_in": 3599, "access_token": "a" * 60, **fields}
    return lambda _: web.json_response({name: value for name, value in whole.items() if value is not None})


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.0000000Z"
