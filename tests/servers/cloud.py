"""An issuer, an STS that trusts it, and AWS providers that ask that STS."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp

from agent.clock import Clock, WallClock
from agent.counters import Counters
from agent.providers.aws.client import AwsClients
from agent.providers.aws.provider import AwsProvider
from agent.providers.aws.settings import AwsSettings
from agent.settings import convert
from agent.toolbox import Resources, Toolbox
from tests.servers.issuer import SUBJECT, Issuer
from tests.servers.sts import Sts, Trust

ROLE = "arn:aws:iam::123456789012:role/s3-reader"


class Cloud:
    """What a test of an exchange needs."""

    def __init__(self, issuer: Issuer, sts: Sts, aws: AwsClients, toolbox: Toolbox) -> None:
        self.issuer = issuer
        self.sts = sts
        self.aws = aws
        self.toolbox = toolbox

    def provider(self, identity: str = "s3-reader", **settings: Any) -> AwsProvider:
        """One that asks this cloud's STS, unless the settings say otherwise."""
        return AwsProvider(aws_settings(**{"endpoint": self.sts.url, **settings}), identity, self.toolbox)


def aws_settings(**settings: Any) -> AwsSettings:
    """As in a configuration file; `roleArn` and `region` have defaults."""
    settings = {"type": "aws", "roleArn": ROLE, "region": "eu-west-1", **settings}
    found: AwsSettings = convert(settings, AwsSettings)
    return found


@asynccontextmanager
async def cloud(*, clock: Clock | None = None, patience: float = 5.0, **sts: Any) -> AsyncIterator[Cloud]:
    """Up while entered."""
    async with Issuer() as issuer, aiohttp.ClientSession() as http:

        async def session() -> aiohttp.ClientSession:
            return http

        async with Sts({ROLE: Trust(issuer=issuer.url, subject=SUBJECT)}, **sts) as server, Resources(session) as resources:
            aws = AwsClients(session, timeout=patience)
            resources.put(aws)
            toolbox = Toolbox(clock=clock or WallClock(), random=Random(0), counters=Counters(), http=session, resources=resources)
            yield Cloud(issuer, server, aws, toolbox)
