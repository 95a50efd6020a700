"""A local OIDC issuer: a discovery document, keys, and tokens of any content."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from agent.claims import read_token
from agent.model import IdentityToken
from tests.servers.site import Site

SUBJECT = "system:serviceaccount:demo:s3-reader"
AUDIENCE = "sts.amazonaws.com"


@cache
def rsa_key(name: str = "") -> rsa.RSAPrivateKey:
    """The process's key of that name; making one takes a tenth of a second."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Issuer(Site):
    """Signs what it is told to; `up` = False answers 503 instead of documents."""

    kid = "one"
    up = True

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count(1)

    def mint(
        self,
        claims: Mapping[str, Any] | None = None,
        *,
        key: rsa.RSAPrivateKey | None = None,
        now: datetime | None = None,
        **overrides: Any,
    ) -> str:
        """A token for an hour; a claim of None is left out."""
        now = now or datetime.now(UTC)
        whole = {
            "iss": self.url,
            "sub": SUBJECT,
            "aud": AUDIENCE,
            "iat": int(now.timestamp()),
            "exp": int((now + timedelta(hours=1)).timestamp()),
            "jti": f"token-{next(self._numbers)}",
            **(claims or {}),
            **overrides,
        }
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(whole, key or rsa_key(), algorithm="RS256", headers={"kid": self.kid})

    def token(self, claims: Mapping[str, Any] | None = None, **overrides: Any) -> IdentityToken:
        """The same, as a source gives it."""
        return read_token(self.mint(claims, **overrides), whose="the test's issuer", now=datetime.now(UTC))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self.up:
            return web.Response(status=503)
        if request.path == "/.well-known/openid-configuration":
            return web.json_response(
                {"issuer": self.url, "jwks_uri": f"{self.url}/jwks", "id_token_signing_alg_values_supported": ["RS256"]}
            )
        if request.path == "/jwks":
            key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key().public_key()))
            return web.json_response({"keys": [{**key, "kid": self.kid, "use": "sig", "alg": "RS256"}]})
        return web.Response(status=404)
