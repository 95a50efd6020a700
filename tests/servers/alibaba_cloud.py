"""An issuer, an Alibaba STS that trusts it, and Alibaba providers that ask that STS."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp

from agent.clock import Clock, WallClock
from agent.counters import Counters
from agent.model import IdentityToken
from agent.providers.alibaba.provider import AlibabaProvider
from agent.providers.alibaba.settings import AlibabaSettings
from agent.settings import convert
from agent.toolbox import Toolbox
from tests.servers.alibaba import AlibabaSts, Trust
from tests.servers.issuer import SUBJECT, Issuer

ROLE = "acs:ram::1234567890123456:role/oss-reader"
PROVIDER = "acs:ram::1234567890123456:oidc-provider/cluster"
AUDIENCE = "sts.aliyuncs.com"


class AlibabaCloud:
    """What a test of an exchange needs."""

    def __init__(self, issuer: Issuer, sts: AlibabaSts, toolbox: Toolbox, patience: float) -> None:
        self.issuer = issuer
        self.sts = sts
        self.toolbox = toolbox
        self._patience = patience

    def provider(self, identity: str = "oss-reader", **settings: Any) -> AlibabaProvider:
        """One that asks this cloud's STS, unless the settings say otherwise."""
        whole = alibaba_settings(**{"endpoint": self.sts.url, **settings})
        return AlibabaProvider(whole, identity, self.toolbox, timeout=self._patience)

    def token(self, **claims: Any) -> IdentityToken:
        """For Alibaba."""
        return self.issuer.token(**{"aud": AUDIENCE, **claims})


def alibaba_settings(**settings: Any) -> AlibabaSettings:
    """As in a configuration file; `roleArn` and `oidcProviderArn` have defaults."""
    settings = {"type": "alibaba", "roleArn": ROLE, "oidcProviderArn": PROVIDER, **settings}
    found: AlibabaSettings = convert(settings, AlibabaSettings)
    return found


@asynccontextmanager
async def alibaba_cloud(*, clock: Clock | None = None, patience: float = 5.0, **sts: Any) -> AsyncIterator[AlibabaCloud]:
    """Up while entered."""
    async with Issuer() as issuer, aiohttp.ClientSession() as http:

        async def session() -> aiohttp.ClientSession:
            return http

        trust = {ROLE: Trust(issuer=issuer.url, subject=SUBJECT, provider=PROVIDER)}
        async with AlibabaSts(trust, **sts) as server:
            toolbox = Toolbox(clock=clock or WallClock(), random=Random(0), counters=Counters(), http=session)
            yield AlibabaCloud(issuer, server, toolbox, patience)
