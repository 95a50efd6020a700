"""An exchange with Google: sends each request over the HTTP client, and reads each answer itself."""

from datetime import datetime
from urllib.parse import urlsplit

from agent.clock import Clock
from agent.errors import RefreshError, Unavailable
from agent.http.client import HttpClient
from agent.model import Secret
from agent.providers.gcp import requests
from agent.providers.gcp.credentials import granted, granted_id_token
from agent.providers.gcp.errors import sort
from agent.providers.gcp.requests import GoogleRequest
from agent.providers.gcp.targets import ExchangeTarget
from agent.providers.gcp.trust import Trust

Granted = tuple[Secret, datetime, datetime]
"""A token, the time of its request and its end, UTC."""


class Exchange:
    """For one identity token. Every failure is Unavailable or Rejected, without a secret in its text or context."""

    def __init__(self, client: HttpClient, clock: Clock, target: ExchangeTarget, *, token: Secret, trust: Trust, whose: str) -> None:
        self._client = client
        self._clock = clock
        self._target = target
        self._token = token
        self._trust = trust
        self._whose = whose

    async def access_token(self) -> Granted:
        """Return the access token of the identity, or of its service account."""
        found = await self._federated()
        if self._target.account is None:
            return found
        return await self._ask(requests.access_token(self._target, self._token, found[0]), self._token, found[0])

    async def id_token(self, audience: str) -> Granted:
        """Return the service account's ID token for this audience, signed by Google."""
        if self._target.account is None:
            raise RuntimeError("only a service account has ID tokens")
        federated, _, _ = await self._federated()
        return await self._ask(requests.id_token(self._target.account, federated, audience), self._token, federated, identity=True)

    async def _federated(self) -> Granted:
        """Return what the security token service grants for the identity token."""
        return await self._ask(requests.access_token(self._target, self._token), self._token)

    async def _ask(self, request: GoogleRequest, *secrets: Secret, identity: bool = False) -> Granted:
        host = urlsplit(request.url).netloc
        asked_at = self._clock.now()
        answer = await self._client.send("POST", request.url, headers=request.headers, body=request.body)
        failure: RefreshError
        if answer.status != 200:
            failure = sort(answer, self._trust, whose=self._whose, host=host, secrets=secrets, now=self._clock.now())
        elif (found := (granted_id_token if identity else granted)(answer.body, asked_at)) is None:
            failure = Unavailable(
                f"{self._whose}: {host} answered 200 without a usable token",
                remedy="check provider.endpoint, provider.iamEndpoint and provider.proxy, and whether a sign-in page intercepts requests",
            )
        elif found[1] <= self._clock.now():
            failure = Unavailable(
                f"{self._whose}: {host} granted a token that has ended already", remedy="compare the clock of this machine with Google's"
            )
        else:
            return found[0], asked_at, found[1]
        raise failure
