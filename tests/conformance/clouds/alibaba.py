"""Alibaba Cloud."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from tests.conformance.subject import IDENTITY, Answer, Cloud, Subject
from tests.servers.alibaba import page, refuse
from tests.servers.alibaba_cloud import alibaba_cloud, alibaba_settings


@asynccontextmanager
async def up(*, patience: float = 5.0, **server: Any) -> AsyncIterator[Subject]:
    async with alibaba_cloud(patience=patience, **server) as alibaba:
        yield Subject(
            server=alibaba.sts,
            toolbox=alibaba.toolbox,
            provider=lambda **chosen: alibaba.provider(IDENTITY, **chosen),
            settings=lambda **chosen: alibaba_settings(**{"endpoint": alibaba.sts.url, **chosen}),
            token=alibaba.token,
            granted=lambda: [text for one in alibaba.sts.sessions.values() for text in (one.secret, one.token)],
        )


def _granting(**expiration: Any) -> Answer:
    keys = {"AccessKeyId": "STS.x", "AccessKeySecret": "s" * 40, "SecurityToken": "t" * 90}
    return page(200, json.dumps({"Credentials": keys | expiration}))


def grant(ends: datetime | None) -> Answer:
    return _granting(**({"Expiration": f"{ends:%Y-%m-%dT%H:%M:%SZ}"} if ends else {}))


CLOUD = Cloud(
    open=up,
    codes={
        "audience": "AuthenticationFail.OIDCToken.AudienceNotMatch",
        "subject": "AuthenticationFail.NoPermission",
        "expired": "AuthenticationFail.OIDCToken.Expired",
        "key": "AuthenticationFail.OIDCToken.Invalid",
    },
    troubled=lambda status, **headers: refuse(status, "Throttling.User", **headers),
    page=page,
    grant=grant,
    senseless=[_granting(Expiration=value) for value in ("soon", "", None, float("nan"), 1e300, -1, True, [], {})],
    kept=frozenset({"credentials"}),
)
