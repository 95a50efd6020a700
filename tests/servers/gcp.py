"""A Google that verifies: tokens against their issuer's published keys, and who may act as which service account.

Plays the security token service, the IAM Service Account Credentials API, GKE's metadata server and one API that takes
access tokens, with Google's statuses, codes and words, as far as they are on record. What this refuses is the only proof
that the agent and the SDKs send the right thing.

https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token
https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts
"""

import asyncio
import json
import secrets
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import jwt
from aiohttp import web

from agent.clock import Clock, WallClock
from agent.counters import Counters
from agent.providers.gcp.provider import GcpProvider
from agent.providers.gcp.settings import GcpSettings
from agent.settings import convert
from agent.toolbox import Toolbox
from tests.servers.issuer import SUBJECT, Issuer, rsa_key
from tests.servers.site import Site

PATH = "projects/123456789012/locations/global/workloadIdentityPools/demo-pool/providers/demo-issuer"
AUDIENCE = f"https://iam.googleapis.com/{PATH}"
ACCOUNT = "reader@demo-project.iam.gserviceaccount.com"
CLUSTER = {
    "project/project-id": "gke-project",
    "instance/attributes/cluster-location": "europe-west1",
    "instance/attributes/cluster-name": "c1",
}
GKE_AUDIENCE = (
    "identitynamespace:gke-project.svc.id.goog:https://container.googleapis.com/v1/projects/gke-project/locations/europe-west1/clusters/c1"
)
IAM_SCOPES = {"https://www.googleapis.com/auth/iam", "https://www.googleapis.com/auth/cloud-platform"}
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # a name
JWT = "urn:ietf:params:oauth:token-type:jwt"


@dataclass(frozen=True)
class Pool:
    """A provider of a pool: whom it believes."""

    issuer: str
    audiences: tuple[str, ...] = (AUDIENCE, AUDIENCE.removeprefix("https:"))
    """As Google by default: its resource name with and without https:."""
    subject: str = ""
    """An attribute condition; empty believes every subject of the issuer."""


@dataclass(frozen=True)
class Session:
    """What was granted."""

    principal: str
    """The subject, or the email of a service account."""
    scopes: tuple[str, ...]
    expires_at: datetime
    jti: str = ""
    """Of the identity token that it goes back to."""


class OAuthError(Exception):
    """As the security token service answers it."""

    def __init__(self, code: str, description: str, status: int = 400) -> None:
        super().__init__(code)
        self.status = status
        self.body: dict[str, Any] = {"error": code, "error_description": description}


class StatusError(Exception):
    """As Google's APIs answer it."""

    def __init__(self, status: int, code: str, message: str, reason: str = "") -> None:
        super().__init__(code)
        self.status = status
        details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "iam.googleapis.com"}]
        self.body = {"error": {"code": status, "message": message, "status": code, **({"details": details} if reason else {})}}


class Gcp(Site):
    """Grants tokens; its attributes say how it behaves, at any time."""

    def __init__(
        self, pools: Mapping[str, Pool], *, tls: ssl.SSLContext | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """`pools`: by the audience that the security token service is asked for."""
        super().__init__(tls)
        self.pools = dict(pools)
        self.now = now
        self.users: dict[str, str] = {ACCOUNT: SUBJECT}
        """Who may act as a service account: a subject, or another service account."""
        self.lifetime: float | None = None
        """Seconds granted whatever was asked for, 30 say; None does as Google."""
        self.generations: int | None = None
        """Of a subject's tokens, the newest so many are accepted; None accepts all that have not expired."""
        self.delay = 0.0
        """Seconds before each answer."""
        self.instead: Callable[[web.BaseRequest], web.StreamResponse | None] | None = None
        """Answers in place of Google, unless with None; see the functions below."""
        self.hanging = False
        self.cluster = dict(CLUSTER)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """Path and parameters of each request, without the identity token."""
        self.sessions: dict[str, Session] = {}
        """By access token."""
        self._seen: defaultdict[str, set[float]] = defaultdict(set)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, body = request.path, await request.read()
        if path.startswith("/computeMetadata/v1/"):
            self.asked.append((path, {}))
            return self._metadata(request, path.removeprefix("/computeMetadata/v1/"))
        form = path in {"/v1/token", "/v1/introspect"}
        try:
            parameters = dict(parse_qsl(body.decode(), keep_blank_values=True)) if form else json.loads(body or b"{}")
        except ValueError:
            return web.Response(status=400)
        self.asked.append((path, {name: value for name, value in parameters.items() if name not in {"subject_token", "token"}}))
        if self.hanging:
            await asyncio.Event().wait()
        await asyncio.sleep(self.delay)
        if self.instead and (instead := self.instead(request)):
            return instead
        try:
            if path == "/v1/token":
                return web.json_response(await self._token(parameters))
            session = self._session(
                parameters.get("token", "") if form else request.headers.get("Authorization", "").removeprefix("Bearer ")
            )
            if path == "/v1/introspect":
                return web.json_response({"active": True, "username": session.principal})
            if path == "/resource":
                return web.json_response({"principal": session.principal, "scopes": session.scopes, "jti": session.jti})
            return web.json_response(self._account(path, parameters, session))
        except (OAuthError, StatusError) as refusal:
            return web.json_response(refusal.body, status=refusal.status)

    def _metadata(self, request: web.BaseRequest, place: str) -> web.StreamResponse:
        if self.instead and (instead := self.instead(request)):
            return instead
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403, headers={"Metadata-Flavor": "Google"})
        status = 200 if place in self.cluster else 404
        return web.Response(status=status, text=self.cluster.get(place, ""), headers={"Metadata-Flavor": "Google"})

    async def _token(self, form: Mapping[str, str]) -> dict[str, Any]:
        expected = {"grant_type": EXCHANGE, "requested_token_type": ACCESS_TOKEN, "subject_token_type": JWT}
        if any(form.get(name) != value for name, value in expected.items()) or not form.get("scope"):
            raise OAuthError("invalid_request", "Invalid value for a parameter.")
        pool = self.pools.get(form.get("audience", ""))
        if pool is None:
            text = 'The target service indicated by the "audience" parameters is invalid. '
            text += "This might either be because the pool or provider is disabled or deleted or because it doesn't exist."
            raise OAuthError("invalid_target", text)
        claims = await self._verified(form.get("subject_token", ""), pool)
        if pool.subject and claims["sub"] != pool.subject:
            raise OAuthError("unauthorized_client", "The given credential is rejected by the attribute condition.")
        token, session = self._granted(claims["sub"], tuple(form["scope"].split(" ")), 3600, claims.get("jti", ""))
        lifetime = int((session.expires_at - self.now()).total_seconds())
        return {"access_token": token, "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": lifetime}

    async def _verified(self, token: str, pool: Pool) -> dict[str, Any]:
        try:
            header, unverified = jwt.get_unverified_header(token), jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError:
            raise OAuthError("invalid_request", "Invalid value for subject_token") from None
        if unverified.get("iss") != pool.issuer:
            raise OAuthError("invalid_grant", f"The issuer in ID Token {unverified.get('iss')} does not match the expected ones.")
        keys = await self._keys(pool.issuer)
        try:
            key = next(one for one in keys if one.key_id == header.get("kid"))
            options: Any = {"require": ["iss", "aud", "sub", "iat", "exp"], "verify_exp": False, "verify_aud": False, "verify_iat": False}
            claims: dict[str, Any] = jwt.decode(token, key, algorithms=["RS256", "ES256"], issuer=pool.issuer, options=options)
        except (StopIteration, jwt.PyJWTError):
            raise OAuthError("invalid_grant", "Unable to verify the signature of the ID Token.") from None
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if not set(audiences) & set(pool.audiences):
            raise OAuthError(
                "invalid_grant",
                f"The audience in ID Token [[{', '.join(audiences)}]] does not match the expected audience {pool.audiences[0]}.",
            )
        seen = self._seen[claims["sub"]]
        seen.add(claims["iat"])
        old = self.generations is not None and claims["iat"] not in sorted(seen)[-self.generations :]
        if claims["exp"] <= self.now().timestamp() or old:
            raise OAuthError("invalid_grant", f"ID Token issued at {claims['iat']} is stale to sign-in.")
        if claims["iat"] > self.now().timestamp() + 1:
            raise OAuthError("invalid_grant", f"ID Token issued at {claims['iat']} is in the future.")
        return claims

    async def _keys(self, issuer: str) -> list[Any]:
        """What the issuer publishes, fetched each time."""
        try:
            async with aiohttp.ClientSession(raise_for_status=True, timeout=aiohttp.ClientTimeout(total=2)) as http:
                async with http.get(f"{issuer}/.well-known/openid-configuration") as response:
                    document = await response.json()
                async with http.get(document["jwks_uri"]) as response:
                    return list(jwt.PyJWKSet.from_dict(await response.json()).keys)
        except (aiohttp.ClientError, TimeoutError, KeyError, ValueError, jwt.PyJWTError):
            raise OAuthError("invalid_grant", "Error connecting to the given credential's issuer.") from None

    def _session(self, token: str) -> Session:
        session = self.sessions.get(token)
        if session is None or session.expires_at <= self.now():
            raise StatusError(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", "ACCESS_TOKEN_EXPIRED")
        return session

    def _account(self, path: str, body: Mapping[str, Any], session: Session) -> dict[str, Any]:
        name, _, verb = path.removeprefix("/v1/projects/-/serviceAccounts/").partition(":")
        if verb not in {"generateAccessToken", "generateIdToken"}:
            raise StatusError(404, "NOT_FOUND", "Method not found.")
        if not IAM_SCOPES & set(session.scopes):
            raise StatusError(
                403, "PERMISSION_DENIED", "Request had insufficient authentication scopes.", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"
            )
        holder = session.principal
        for step in [*(body.get("delegates") or []), f"projects/-/serviceAccounts/{name}"]:
            email = step.removeprefix("projects/-/serviceAccounts/")
            if email == step or self.users.get(email) != holder:
                permission = "getAccessToken" if verb == "generateAccessToken" else "getOpenIdToken"
                message = f"Permission 'iam.serviceAccounts.{permission}' denied on resource (or it may not exist)."
                raise StatusError(403, "PERMISSION_DENIED", message, "IAM_PERMISSION_DENIED")
            holder = email
        if verb == "generateIdToken":
            return {"token": self._id_token(name, body)}
        lifetime = body.get("lifetime", "3600s")
        if not body.get("scope") or not lifetime.endswith("s") or not 0 < int(lifetime[:-1]) <= 43200:
            raise StatusError(400, "INVALID_ARGUMENT", "Request contains an invalid argument.")
        token, granted = self._granted(name, tuple(body["scope"]), int(lifetime[:-1]), session.jti)
        return {"accessToken": token, "expireTime": f"{granted.expires_at:%Y-%m-%dT%H:%M:%SZ}"}

    def _granted(self, principal: str, scopes: tuple[str, ...], lifetime: float, jti: str) -> tuple[str, Session]:
        expires_at = self.now() + timedelta(seconds=lifetime if self.lifetime is None else self.lifetime)
        token = f"ya29.{secrets.token_urlsafe(60)}"
        self.sessions[token] = Session(principal=principal, scopes=scopes, expires_at=expires_at, jti=jti)
        return token, self.sessions[token]

    def _id_token(self, email: str, body: Mapping[str, Any]) -> str:
        now = int(self.now().timestamp())
        claims = {"iss": "https://accounts.google.com", "aud": body["audience"], "sub": "1", "iat": now, "exp": now + 3600}
        return jwt.encode(claims | ({"email": email} if body.get("includeEmail") else {}), rsa_key("google"), algorithm="RS256")


def answer(status: int, body: Any, *, path: str = "", **headers: str) -> Callable[[web.BaseRequest], web.StreamResponse | None]:
    """JSON, or a page where it is text; only for paths that end so. `Retry_After="7"` is a header."""
    text, kind = (body, "text/html") if isinstance(body, str) else (json.dumps(body), "application/json")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: web.Response(status=status, text=text, headers=named, content_type=kind) if request.path.endswith(path) else None


class Google:
    """What a test of an exchange needs."""

    def __init__(self, issuer: Issuer, gcp: Gcp, toolbox: Toolbox, patience: float) -> None:
        self.issuer = issuer
        self.gcp = gcp
        self.toolbox = toolbox
        self.patience = patience

    def provider(self, identity: str = "reader", **settings: Any) -> GcpProvider:
        """One that asks this Google, unless the settings say otherwise."""
        places = {"endpoint": self.gcp.url, "iamEndpoint": self.gcp.url}
        return GcpProvider(gcp_settings(**{**places, **settings}), identity, self.toolbox, timeout=self.patience)

    def token(self, **claims: Any) -> Any:
        """An identity token for the pool."""
        return self.issuer.token(**{"aud": AUDIENCE, **claims})


def gcp_settings(**settings: Any) -> GcpSettings:
    """As in a configuration file; `workloadIdentityProvider` has a default, unless `gke` is set."""
    pool = {} if settings.get("gke") else {"workloadIdentityProvider": PATH}
    found: GcpSettings = convert({"type": "gcp", **pool, **settings}, GcpSettings)
    return found


@asynccontextmanager
async def google(*, clock: Clock | None = None, patience: float = 5.0, **gcp: Any) -> AsyncIterator[Google]:
    """Up while entered."""
    async with Issuer() as issuer, aiohttp.ClientSession() as http:

        async def session() -> aiohttp.ClientSession:
            return http

        pools = {f"//iam.googleapis.com/{PATH}": Pool(issuer.url), GKE_AUDIENCE: Pool(issuer.url, ("gke-project.svc.id.goog",))}
        async with Gcp(pools, **gcp) as server:
            toolbox = Toolbox(clock=clock or WallClock(), random=Random(0), counters=Counters(), http=session)
            yield Google(issuer, server, toolbox, patience)
