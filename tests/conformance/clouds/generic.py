"""No cloud: nothing is exchanged."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp

from agent.clock import WallClock
from agent.counters import Counters
from agent.providers.generic import GenericProvider, GenericSettings
from agent.settings import convert
from agent.toolbox import Toolbox
from tests.conformance.subject import IDENTITY, Cloud, Subject
from tests.servers.issuer import Issuer
from tests.servers.site import Site


def settings(**chosen: Any) -> GenericSettings:
    found: GenericSettings = convert({"type": "generic", "audiences": ["vault"], **chosen}, GenericSettings)
    return found


@asynccontextmanager
async def up(*, patience: float = 5.0, **server: Any) -> AsyncIterator[Subject]:
    async with Issuer() as issuer, Site() as nobody, aiohttp.ClientSession() as http:

        async def session() -> aiohttp.ClientSession:
            return http

        toolbox = Toolbox(clock=WallClock(), random=Random(0), counters=Counters(), http=session)
        yield Subject(
            server=nobody,
            toolbox=toolbox,
            provider=lambda **chosen: GenericProvider(settings(**chosen), IDENTITY, toolbox),
            settings=settings,
            token=lambda **claims: issuer.token(**{"aud": "vault", **claims}),
            granted=list,
        )


CLOUD = Cloud(open=up, exchanges=False, files=frozenset({"config"}))
