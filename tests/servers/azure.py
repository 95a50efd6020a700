"""An issuer, an Entra ID that trusts it, and Azure providers that ask that Entra ID."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp
import pytest

from agent.clock import Clock, WallClock
from agent.counters import Counters
from agent.errors import RefreshError
from agent.model import IdentityToken
from agent.providers.azure.provider import AzureProvider
from agent.providers.azure.settings import AzureSettings
from agent.settings import convert
from agent.toolbox import Toolbox
from tests.servers.entra import AUDIENCE, CLIENT, TENANT, Entra, Federated
from tests.servers.issuer import SUBJECT, Issuer


class Azure:
    """What a test of an exchange needs."""

    def __init__(self, issuer: Issuer, entra: Entra, toolbox: Toolbox, patience: float) -> None:
        self.issuer = issuer
        self.entra = entra
        self.toolbox = toolbox
        self._patience = patience

    def token(self, claims: Mapping[str, Any] | None = None, **overrides: Any) -> IdentityToken:
        """One that Entra trusts, unless it is told to differ."""
        return self.issuer.token(claims, **{"aud": AUDIENCE, **overrides})

    def provider(self, identity: str = "vault-reader", **settings: Any) -> AzureProvider:
        """One that asks this cloud's Entra, unless the settings say otherwise."""
        chosen = azure_settings(**{"endpoint": self.entra.url, **settings})
        return AzureProvider(chosen, identity, self.toolbox, timeout=self._patience)


def azure_settings(**settings: Any) -> AzureSettings:
    """As in a configuration file; `tenantId` and `clientId` have defaults."""
    found: AzureSettings = convert({"type": "azure", "tenantId": TENANT, "clientId": CLIENT, **settings}, AzureSettings)
    return found


@asynccontextmanager
async def azure(*, clock: Clock | None = None, patience: float = 5.0, **entra: Any) -> AsyncIterator[Azure]:
    """Up while entered."""
    async with Issuer() as issuer, aiohttp.ClientSession() as http:

        async def session() -> aiohttp.ClientSession:
            return http

        async with Entra({CLIENT: Federated(issuer=issuer.url, subject=SUBJECT)}, **entra) as server:
            toolbox = Toolbox(clock=clock or WallClock(), random=Random(0), counters=Counters(), http=session)
            yield Azure(issuer, server, toolbox, patience)


async def failure(one: Azure, token: Any = None, variant: str = "", **settings: Any) -> RefreshError:
    """What the exchange raises; nothing of the token is in it or behind it."""
    token = token or one.token()
    with pytest.raises(RefreshError) as caught:
        await one.provider(**settings).exchange(token, variant)
    error: BaseException | None = caught.value
    assert caught.value.message.startswith("vault-reader: ")
    while error is not None:
        for text in (str(error), repr(error), repr(error.args)):
            assert not any(part in text for part in token.value.reveal().split("."))
        error = error.__cause__ or error.__context__
    return caught.value
