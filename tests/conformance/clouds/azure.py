"""Microsoft Azure."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from tests.conformance.subject import IDENTITY, Answer, Cloud, Subject
from tests.servers.azure import azure, azure_settings
from tests.servers.entra import grant as granting
from tests.servers.entra import page, refuse


@asynccontextmanager
async def up(*, patience: float = 5.0, **server: Any) -> AsyncIterator[Subject]:
    async with azure(patience=patience, **server) as cloud:
        yield Subject(
            server=cloud.entra,
            toolbox=cloud.toolbox,
            provider=lambda **chosen: cloud.provider(IDENTITY, **chosen),
            settings=lambda **chosen: azure_settings(**{"endpoint": cloud.entra.url, **chosen}),
            token=cloud.token,
            granted=lambda: list(cloud.entra.granted),
        )


def grant(ends: datetime | None) -> Answer:
    return granting(expires_in=int((ends - datetime.now(UTC)).total_seconds()) if ends else None)


CLOUD = Cloud(
    open=up,
    codes={"audience": "AADSTS700212", "subject": "AADSTS700213", "expired": "AADSTS700024", "key": "AADSTS7000272"},
    troubled=lambda status, **headers: refuse(status, 90033, error="temporarily_unavailable", **headers),
    page=page,
    grant=grant,
    senseless=[granting(expires_in=value) for value in ("soon", "", float("nan"), float("inf"), 1e300, -1, True, [], {})],
    modules=frozenset({"azure", "msal"}),
)
