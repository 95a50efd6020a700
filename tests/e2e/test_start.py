"""The first seconds of an agent."""

import asyncio
from typing import Any

from bench.subjects import free_port
from tests.e2e.daemon import Daemon, configuration, identity, issuer
from tests.servers.entra import CLIENT, TENANT, Entra, Federated

MANY = 8
"""Identities: those that are taken up first ask while the last ones are taken up."""


async def test_the_issuer_can_be_asked_before_the_first_token_is_shown_to_a_cloud(daemon: Daemon) -> None:
    """Else each start begins with refusals that send whoever reads them to look at the network."""
    url = f"http://127.0.0.1:{free_port()}"
    subject = "system:serviceaccount:demo:reader"
    async with Entra({CLIENT: Federated(issuer=url, subject=subject)}) as entra:
        provider: dict[str, Any] = {"type": "azure", "tenantId": TENANT, "clientId": CLIENT, "endpoint": entra.url}
        provider["scopes"] = ["https://vault.azure.net/.default"]
        many = [identity(f"reader-{number}", provider=provider, serve={"dialects": ["appservice"]}) for number in range(MANY)]
        for one in many:
            one["source"]["subject"] = subject
        block = issuer(url=url, listen=[url.removeprefix("http://")])
        await asyncio.to_thread(daemon.start, configuration(*many, issuer=block))
        assert daemon.log("refresh.failed") == []
        assert len(entra.presented) == MANY
        await asyncio.to_thread(daemon.stop)
