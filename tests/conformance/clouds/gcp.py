"""Google Cloud."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.conformance.subject import IDENTITY, Answer, Cloud, Subject
from tests.servers.gcp import answer, gcp_settings, google
from tests.servers.issuer import SUBJECT


@asynccontextmanager
async def up(*, patience: float = 5.0, **server: Any) -> AsyncIterator[Subject]:
    async with google(patience=patience, **server) as cloud:
        cloud.gcp.pools = {name: replace(pool, subject=SUBJECT) for name, pool in cloud.gcp.pools.items()}
        places = {"endpoint": cloud.gcp.url, "iamEndpoint": cloud.gcp.url}
        yield Subject(
            server=cloud.gcp,
            toolbox=cloud.toolbox,
            provider=lambda **chosen: cloud.provider(IDENTITY, **chosen),
            settings=lambda **chosen: gcp_settings(**{**places, **chosen}),
            token=cloud.token,
            granted=lambda: list(cloud.gcp.sessions),
        )


def _granting(**expiry: Any) -> Answer:
    kind = "urn:ietf:params:oauth:token-type:access_token"
    return answer(200, {"access_token": "ya29." + "a" * 60, "issued_token_type": kind, "token_type": "Bearer", **expiry})  # type: ignore[return-value]


def grant(ends: datetime | None) -> Answer:
    return _granting(**({"expires_in": int((ends - datetime.now(UTC)).total_seconds())} if ends else {}))


CLOUD = Cloud(
    open=up,
    codes={"audience": "invalid_grant", "subject": "unauthorized_client", "expired": "invalid_grant", "key": "invalid_grant"},
    troubled=lambda status, **headers: answer(status, {"error": "temporarily_unavailable"}, **headers),
    page=answer,
    grant=grant,
    senseless=[_granting(expires_in=value) for value in ("soon", "", float("nan"), float("inf"), 1e300, -1, True, [], {})],
    kept=frozenset({"credentials"}),
    modules=frozenset({"google"}),
)
