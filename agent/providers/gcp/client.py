"""An errand, run: each request is sent over the wire, and each answer is read before anything else is made of it."""

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
"""A token, when it was asked for and when it ends."""


class Exchange:
    """For one identity token. Every failure is Unavailable or Rejected, with nothing secret in it or behind it."""

    def __init__(self, wire: HttpClient, clock: Clock, target: ExchangeTarget, *, token: Secret, trust: Trust, whose: str) -> None:
        self._wire = wire
        self._clock = clock
        self._errand = target
        self._token = token
        self._trust = trust
        self._whose = whose

    async def access_token(self) -> Granted:
        """Of the identity, or of its service account."""
        found = await self._federated()
        if self._errand.account is None:
            return found
        return await self._ask(requests.access_token(self._errand, self._token, found[0]), self._token, found[0])

    async def id_token(self, audience: str) -> Granted:
        """Of the service account, signed by Google, for this audience."""
        if self._errand.account is None:
            raise RuntimeError("an ID token is of a service account")
        federated, _, _ = await self._federated()
        return await self._ask(requests.id_token(self._errand.account, federated, audience), self._token, federated, identity=True)

    async def _federated(self) -> Granted:
        """What the security token service gives for the identity token."""
        return await self._ask(requests.access_token(self._errand, self._token), self._token)

    async def _ask(self, question: GoogleRequest, *secrets: Secret, identity: bool = False) -> Granted:
        host = urlsplit(question.url).netloc
        asked_at = self._clock.now()
        answer = await self._wire.send("POST", question.url, headers=question.headers, body=question.body)
        failure: RefreshError
        if answer.status != 200:
            failure = sort(answer, self._trust, whose=self._whose, host=host, secrets=secrets, now=self._clock.now())
        elif (found := (granted_id_token if identity else granted)(answer.body, asked_at)) is None:
            failure = Unavailable(
                f"{self._whose}: {host} granted no token with an end, in the way that Google would",
                remedy="check provider.endpoint, provider.iamEndpoint and provider.proxy, and for a sign-in page in between, if this stays",
            )
        elif found[1] <= self._clock.now():
            failure = Unavailable(
                f"{self._whose}: {host} granted a token that has ended already", remedy="compare the clock of this machine with Google's"
            )
        else:
            return found[0], asked_at, found[1]
        raise failure
