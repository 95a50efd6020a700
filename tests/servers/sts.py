"""An STS that verifies: tokens against their issuer's published keys, requests against the keys of a session.

Speaks the Query protocol of https://docs.aws.amazon.com/STS/latest/APIReference/, with AWS's statuses and codes.
Moto accepts any token at all, so what this refuses is the only proof that the agent sends the right thing.
"""

import asyncio
import hashlib
import hmac
import secrets
import ssl
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import aiohttp
import jwt
from aiohttp import web

from tests.servers.site import Site

NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


@dataclass(frozen=True)
class Trust:
    """A role's trust policy for a web identity; with `caller`, for the session of another role."""

    issuer: str = ""
    audience: str = "sts.amazonaws.com"
    subject: str = ""
    caller: str = ""
    external_id: str = ""


@dataclass(frozen=True)
class Session:
    """What was granted."""

    role: str
    arn: str
    secret: str = field(repr=False)
    token: str = field(repr=False)
    expires_at: datetime


class RefusalError(Exception):
    """As AWS answers it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message


class Sts(Site):
    """Grants sessions; its attributes say how it behaves, at any time."""

    def __init__(
        self, trust: Mapping[str, Trust], *, tls: ssl.SSLContext | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        super().__init__(tls)
        self.trust = dict(trust)
        self.now = now
        self.lifetime: float | None = None
        """Seconds granted whatever was asked for, 30 say; None does as AWS."""
        self.generations: int | None = None
        """Of a subject's tokens, the newest so many are accepted; None accepts all that have not expired."""
        self.patience = 2.0
        """Seconds that it waits for an issuer."""
        self.delay = 0.0
        """Seconds before each answer."""
        self.instead: Callable[[web.BaseRequest], web.StreamResponse] | None = None
        """Answers in place of STS; see the functions below."""
        self.hanging = False
        self.actions: Counter[str] = Counter()
        self.parameters: dict[str, str] = {}
        """Of the last request, without the token."""
        self.sessions: dict[str, Session] = {}
        """By access key id."""
        self._seen: defaultdict[str, set[float]] = defaultdict(set)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        form = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        action = form.get("Action", "")
        self.actions[action] += 1
        self.parameters = {name: value for name, value in form.items() if name != "WebIdentityToken"}
        if self.hanging:
            await asyncio.Event().wait()
        await asyncio.sleep(self.delay)
        if self.instead:
            return self.instead(request)
        try:
            match action:
                case "AssumeRoleWithWebIdentity":
                    result = await self._web_identity(form)
                case "AssumeRole":
                    result = self._chained(form, await self._caller(request))
                case "GetCallerIdentity":
                    session = await self._caller(request)
                    result = {"Arn": session.arn, "UserId": "AROAEXAMPLE:x", "Account": session.arn.split(":")[4]}
                case _:
                    raise RefusalError(400, "InvalidAction", f"Could not find operation {action} for version 2011-06-15")
        except RefusalError as refusal:
            return refuse(refusal.status, refusal.code, refusal.message)(request)
        body = f"<{action}Result>{_xml(result)}</{action}Result><ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata>"
        return web.Response(text=f'<{action}Response xmlns="{NAMESPACE}">{body}</{action}Response>', content_type="text/xml")

    async def _web_identity(self, form: Mapping[str, str]) -> dict[str, Any]:
        trust = self.trust.get(form.get("RoleArn", ""))
        claims = await self._verified(form.get("WebIdentityToken", ""))
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        known = {one.issuer: one.audience for one in self.trust.values() if one.issuer}
        if claims["iss"] not in known:
            raise RefusalError(400, "InvalidIdentityToken", f"No OpenIDConnect provider found in your account for {claims['iss']}")
        if known[claims["iss"]] not in audiences:
            raise RefusalError(400, "InvalidIdentityToken", "Incorrect token audience")
        if trust is None or trust.issuer != claims["iss"] or trust.audience not in audiences or trust.subject != claims["sub"]:
            raise RefusalError(403, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
        return {
            **self._grant(form, longest=43200),
            "SubjectFromWebIdentityToken": claims["sub"],
            "Audience": trust.audience,
            "Provider": claims["iss"],
        }

    async def _verified(self, token: str) -> dict[str, Any]:
        try:
            header, unverified = jwt.get_unverified_header(token), jwt.decode(token, options={"verify_signature": False})
            issuer = unverified["iss"]
        except (jwt.PyJWTError, KeyError):
            raise RefusalError(
                400, "InvalidIdentityToken", "The ID Token provided is not a valid JWT. (You may see this error if…)"
            ) from None
        keys = await self._keys(issuer)
        try:
            key = next(one for one in keys if one.key_id == header.get("kid"))
            options: Any = {"require": ["iss", "aud", "sub", "iat", "exp"], "verify_exp": False, "verify_aud": False, "verify_iat": False}
            claims: dict[str, Any] = jwt.decode(token, key, algorithms=["RS256", "ES256"], issuer=issuer, options=options)
        except (StopIteration, jwt.PyJWTError):
            raise RefusalError(400, "InvalidIdentityToken", "Invalid signature or claims") from None
        if claims["exp"] <= self.now().timestamp():
            raise RefusalError(400, "ExpiredTokenException", "Token expired: current date/time must be before the expiration date/time")
        seen = self._seen[claims["sub"]]
        seen.add(claims["iat"])
        if self.generations is not None and claims["iat"] not in sorted(seen)[-self.generations :]:
            raise RefusalError(400, "ExpiredTokenException", "Token expired: newer ones have been seen")
        return claims

    async def _keys(self, issuer: str) -> list[Any]:
        """What the issuer publishes, fetched each time."""
        try:
            async with aiohttp.ClientSession(raise_for_status=True, timeout=aiohttp.ClientTimeout(total=self.patience)) as http:
                async with http.get(f"{issuer}/.well-known/openid-configuration") as response:
                    document = await response.json()
                if document["issuer"] != issuer:
                    raise RefusalError(400, "InvalidIdentityToken", "The issuer in the discovery document is another")
                async with http.get(document["jwks_uri"]) as response:
                    return list(jwt.PyJWKSet.from_dict(await response.json()).keys)
        except (aiohttp.ClientError, TimeoutError, KeyError, ValueError, jwt.PyJWTError):
            message = (
                "Couldn't retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation"
            )
            raise RefusalError(400, "InvalidIdentityToken", message) from None

    def _chained(self, form: Mapping[str, str], caller: Session) -> dict[str, Any]:
        role = form.get("RoleArn", "")
        trust = self.trust.get(role)
        if trust is None or trust.caller != caller.role or trust.external_id != form.get("ExternalId", ""):
            raise RefusalError(403, "AccessDenied", f"User: {caller.arn} is not authorized to perform: sts:AssumeRole on resource: {role}")
        return self._grant(form, longest=3600)

    async def _caller(self, request: web.BaseRequest) -> Session:
        """Whose session signed the request (Signature Version 4)."""
        try:
            fields = dict(part.strip().split("=", 1) for part in request.headers["Authorization"].split(" ", 1)[1].split(","))
            access_key, scope = fields["Credential"].split("/", 1)
            signed = fields["SignedHeaders"].split(";")
            moment = request.headers["X-Amz-Date"]
        except (KeyError, ValueError, IndexError):
            raise RefusalError(403, "MissingAuthenticationToken", "Request is missing Authentication Token") from None
        session = self.sessions.get(access_key)
        if session is None or request.headers.get("X-Amz-Security-Token") != session.token:
            raise RefusalError(403, "InvalidClientTokenId", "The security token included in the request is invalid.")
        headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in signed)
        payload = hashlib.sha256(await request.read()).hexdigest()
        canonical = f"{request.method}\n{request.path}\n\n{headers}\n{';'.join(signed)}\n{payload}"
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = b"AWS4" + session.secret.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        if not hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), fields["Signature"]):
            raise RefusalError(
                403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."
            )
        if session.expires_at <= self.now():
            raise RefusalError(403, "ExpiredToken", "The security token included in the request is expired")
        return session

    def _grant(self, form: Mapping[str, str], *, longest: int) -> dict[str, Any]:
        duration = int(form.get("DurationSeconds", "3600"))
        if not 900 <= duration <= longest:
            raise RefusalError(400, "ValidationError", "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
        name = form.get("RoleSessionName", "")
        account, role_name = form["RoleArn"].split(":")[4], form["RoleArn"].rpartition("/")[2]
        session = Session(
            role=form["RoleArn"],
            arn=f"arn:aws:sts::{account}:assumed-role/{role_name}/{name}",
            secret=secrets.token_urlsafe(30),
            token=secrets.token_urlsafe(90),
            expires_at=self.now() + timedelta(seconds=duration if self.lifetime is None else self.lifetime),
        )
        access_key = f"ASIA{secrets.token_hex(8).upper()}"
        self.sessions[access_key] = session
        return {
            "AssumedRoleUser": {"AssumedRoleId": f"AROAEXAMPLE:{name}", "Arn": session.arn},
            "Credentials": {
                "AccessKeyId": access_key,
                "SecretAccessKey": session.secret,
                "SessionToken": session.token,
                "Expiration": f"{session.expires_at:%Y-%m-%dT%H:%M:%SZ}",
            },
        }


def refuse(status: int, code: str, message: str = "", **headers: str) -> Callable[[web.BaseRequest], web.StreamResponse]:
    """An error as AWS words it; `Retry_After="7"` is a header."""
    error = _xml({"Error": {"Type": "Sender", "Code": code, "Message": message}, "RequestId": "r-1"})
    text = f'<ErrorResponse xmlns="{NAMESPACE}">{error}</ErrorResponse>'
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: web.Response(status=status, text=text, headers=named, content_type="text/xml")


def page(status: int, text: str, **headers: str) -> Callable[[web.BaseRequest], web.StreamResponse]:
    """Something that is not STS: a sign-in page, garbage, a redirect with `Location=…`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: web.Response(status=status, text=text, headers=named, content_type="text/html")


def _xml(tree: Mapping[str, Any]) -> str:
    return "".join(f"<{name}>{_xml(value) if isinstance(value, Mapping) else escape(str(value))}</{name}>" for name, value in tree.items())
