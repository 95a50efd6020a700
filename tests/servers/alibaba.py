"""Alibaba's STS, verifying: tokens against their issuer's published keys, roles against a trust policy.

Speaks the RPC protocol of https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc
with its codes and words: parameters may stand in the query, as the Python SDK puts them, or in the body.
"""

import asyncio
import secrets
import ssl
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import jwt
from aiohttp import web

from tests.servers.site import Site

HOST = "sts.aliyuncs.com"
Instead = Callable[[web.BaseRequest], web.StreamResponse]


@dataclass(frozen=True)
class Trust:
    """An OIDC provider in RAM, and the trust policy of the role of which this is said."""

    issuer: str
    subject: str
    provider: str
    """Its ARN."""
    audience: str = "sts.aliyuncs.com"
    client_ids: tuple[str, ...] = ("sts.aliyuncs.com",)
    longest: int = 3600


@dataclass(frozen=True)
class Session:
    """What was granted."""

    role: str
    name: str
    subject: str
    issued_at: float
    """Of the token, its `iat`."""
    secret: str
    token: str
    expires_at: datetime


class RefusalError(Exception):
    """As Alibaba answers it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message


class AlibabaSts(Site):
    """Grants sessions; its attributes say how it behaves, at any time."""

    def __init__(
        self, trust: Mapping[str, Trust], *, tls: ssl.SSLContext | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        super().__init__(tls)
        self.trust = dict(trust)
        self.now = now
        self.lifetime: float | None = None
        """Seconds granted whatever was asked for, 30 say; None does as Alibaba."""
        self.generations: int | None = None
        """Of a subject's tokens, the newest so many are accepted; None accepts all that have not expired."""
        self.delay = 0.0
        """Seconds before each answer."""
        self.instead: Instead | None = None
        """Answers in place of STS; see the functions below."""
        self.hanging = False
        self.actions: Counter[str] = Counter()
        self.query: dict[str, str] = {}
        """Of the last request."""
        self.form: dict[str, str] = {}
        """The body of the last request, without the token."""
        self.method = ""
        self.sessions: dict[str, Session] = {}
        """By access key id."""
        self._seen: defaultdict[str, set[float]] = defaultdict(set)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        form = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        self.query, self.method = dict(request.query), request.method
        self.form = {name: value for name, value in form.items() if name != "OIDCToken"}
        given = {**self.query, **form}
        self.actions[given.get("Action", "")] += 1
        if self.hanging:
            await asyncio.Event().wait()
        await asyncio.sleep(self.delay)
        if self.instead:
            return self.instead(request)
        try:
            if (given.get("Action"), given.get("Version"), given.get("Format")) != ("AssumeRoleWithOIDC", "2015-04-01", "JSON"):
                raise RefusalError(404, "InvalidAction.NotFound", "Specified api is not found, please check your url and method.")
            return web.json_response(await self._assume(given))
        except RefusalError as refusal:
            return refuse(refusal.status, refusal.code, refusal.message)(request)

    async def _assume(self, given: Mapping[str, str]) -> dict[str, Any]:
        role, provider = given.get("RoleArn", ""), given.get("OIDCProviderArn", "")
        registered = next((one for one in self.trust.values() if one.provider == provider), None)
        if registered is None:
            raise RefusalError(403, "AuthenticationFail.NoPermission", "No such OIDC Provider registered.")
        claims = await self._verified(given.get("OIDCToken", ""), registered)
        trust = self.trust.get(role)
        if trust is None:
            raise RefusalError(404, "EntityNotExist.Role", f"The role not exists: {role}. ")
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if trust.provider != provider or trust.audience not in audiences or trust.subject != claims["sub"]:
            raise RefusalError(403, "AuthenticationFail.NoPermission", "There is no permission")
        return self._grant(given, trust, claims)

    async def _verified(self, token: str, trust: Trust) -> dict[str, Any]:
        invalid = RefusalError(400, "AuthenticationFail.OIDCToken.Invalid", "This JsonWebToken is invalid.")
        try:
            kid, issuer = jwt.get_unverified_header(token)["kid"], jwt.decode(token, options={"verify_signature": False})["iss"]
        except (jwt.PyJWTError, KeyError):
            raise invalid from None
        if issuer != trust.issuer:
            message = "The issuer in the OIDC Token doesn't match the OIDC Provider registered."
            raise RefusalError(400, "AuthenticationFail.OIDCToken.IssuerNotMatch", message)
        options: Any = {"require": ["iss", "aud", "sub", "iat", "exp"], "verify_exp": False, "verify_aud": False, "verify_iat": False}
        try:
            key = next(one for one in await self._keys(trust) if one.key_id == kid)
            claims: dict[str, Any] = jwt.decode(token, key, algorithms=["RS256", "ES256"], issuer=issuer, options=options)
        except (StopIteration, jwt.PyJWTError):
            raise invalid from None
        if claims["exp"] <= self.now().timestamp():
            raise RefusalError(400, "AuthenticationFail.OIDCToken.Expired", "This JsonWebToken is expired.")
        if claims["iat"] > self.now().timestamp() + 60:
            raise RefusalError(400, "AuthenticationFail.OIDCToken.Invalid", "This JsonWebToken is not valid yet.")
        if not set(trust.client_ids) & set(claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]):
            raise RefusalError(400, "AuthenticationFail.OIDCToken.AudienceNotMatch", "Invalid audience.")
        seen = self._seen[claims["sub"]]
        seen.add(claims["iat"])
        if self.generations is not None and claims["iat"] not in sorted(seen)[-self.generations :]:
            raise RefusalError(400, "AuthenticationFail.OIDCToken.Expired", "This JsonWebToken is expired: newer ones have been seen.")
        return claims

    async def _keys(self, trust: Trust) -> list[Any]:
        """What the issuer publishes, fetched each time."""
        try:
            async with aiohttp.ClientSession(raise_for_status=True, timeout=aiohttp.ClientTimeout(total=2)) as http:
                async with http.get(f"{trust.issuer}/.well-known/openid-configuration") as response:
                    document = await response.json()
                if document["issuer"] != trust.issuer:
                    raise KeyError
                async with http.get(document["jwks_uri"]) as response:
                    return list(jwt.PyJWKSet.from_dict(await response.json()).keys)
        except (aiohttp.ClientError, TimeoutError, KeyError, ValueError, jwt.PyJWTError):
            message = f"Get public keys from OIDC Provider failed, the issuer is {trust.issuer}."
            raise RefusalError(400, "AuthenticationFail.OIDCToken.IssuerConfigurationBroken", message) from None

    def _grant(self, given: Mapping[str, str], trust: Trust, claims: Mapping[str, Any]) -> dict[str, Any]:
        duration = int(given.get("DurationSeconds", "3600"))
        if not 900 <= duration <= trust.longest:
            raise RefusalError(400, "InvalidParameter.DurationSeconds", "The Min/Max value of DurationSeconds is 15min/1hr.")
        name, role = given.get("RoleSessionName", ""), given["RoleArn"]
        session = Session(
            role=role,
            name=name,
            subject=claims["sub"],
            issued_at=claims["iat"],
            secret=secrets.token_urlsafe(30),
            token=f"CAIS{secrets.token_urlsafe(300)}",
            expires_at=self.now() + timedelta(seconds=duration if self.lifetime is None else self.lifetime),
        )
        access_key = f"STS.{secrets.token_urlsafe(18)}"
        self.sessions[access_key] = session
        return {
            "RequestId": "3D57EAD2-8723-1F26-B69C-F8707D8B565D",
            "OIDCTokenInfo": {"Subject": claims["sub"], "Issuer": claims["iss"], "ClientIds": trust.audience},
            "AssumedRoleUser": {"AssumedRoleId": f"33157794895460:{name}", "Arn": f"{role.replace(':role/', ':assumed-role/')}/{name}"},
            "Credentials": {
                "AccessKeyId": access_key,
                "AccessKeySecret": session.secret,
                "SecurityToken": session.token,
                "Expiration": f"{session.expires_at:%Y-%m-%dT%H:%M:%SZ}",
            },
        }


def refuse(status: int, code: str, message: str = "", **headers: str) -> Instead:
    """An error as Alibaba words it; `Retry_After="7"` is a header."""
    body = {"RequestId": "r-1", "HostId": HOST, "Code": code, "Message": message, "Recommend": "https://api.alibabacloud.com/troubleshoot"}
    return lambda _: web.json_response(body, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def refuse_in_xml(status: int, code: str, message: str = "") -> Instead:
    """The same from a gateway that has not read `Format=JSON`."""
    text = f"<?xml version='1.0' encoding='UTF-8'?><Error><RequestId>r-1</RequestId><Code>{code}</Code><Message>{message}</Message></Error>"
    return lambda _: web.Response(status=status, text=text, content_type="text/xml")


def page(status: int, text: str, **headers: str) -> Instead:
    """Something that is not STS: a sign-in page, garbage, a redirect with `Location=…`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: web.Response(status=status, text=text, headers=named, content_type="text/html")
