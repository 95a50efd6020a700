"""Amazon Web Services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from tests.conformance.subject import IDENTITY, Answer, Cloud, Subject
from tests.servers.cloud import aws_settings, cloud
from tests.servers.sts import page, refuse


@asynccontextmanager
async def up(*, patience: float = 5.0, **server: Any) -> AsyncIterator[Subject]:
    async with cloud(patience=patience, **server) as aws:
        yield Subject(
            server=aws.sts,
            toolbox=aws.toolbox,
            provider=lambda **chosen: aws.provider(IDENTITY, **chosen),
            settings=lambda **chosen: aws_settings(**{"endpoint": aws.sts.url, **chosen}),
            token=aws.issuer.token,
            granted=lambda: [text for one in aws.sts.sessions.values() for text in (one.secret, one.token)],
        )


def _granting(expiration: str) -> Answer:
    keys = f"<AccessKeyId>ASIAX</AccessKeyId><SecretAccessKey>{'s' * 40}</SecretAccessKey><SessionToken>{'t' * 90}</SessionToken>"
    result = f"<AssumeRoleWithWebIdentityResult><Credentials>{keys}{expiration}</Credentials></AssumeRoleWithWebIdentityResult>"
    return page(200, f"<AssumeRoleWithWebIdentityResponse>{result}</AssumeRoleWithWebIdentityResponse>")


def grant(ends: datetime | None) -> Answer:
    return _granting(f"<Expiration>{ends:%Y-%m-%dT%H:%M:%SZ}</Expiration>" if ends else "")


SENSELESS = ("soon", "nan", "1e400", "-1", "", "9" * 30, "9999-12-31T23:59:59-14:00")
CLOUD = Cloud(
    open=up,
    codes={
        "audience": "InvalidIdentityToken",
        "subject": "AccessDenied",
        "expired": "ExpiredTokenException",
        "key": "InvalidIdentityToken",
    },
    troubled=lambda status, **headers: refuse(status, "Throttling", **headers),
    page=page,
    grant=grant,
    senseless=[_granting(f"<Expiration>{text}</Expiration>") for text in SENSELESS],
    kept=frozenset({"credentials"}),
    modules=frozenset({"aiobotocore", "botocore"}),
)
