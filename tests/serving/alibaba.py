"""Alibaba Cloud identities at the metadata endpoint, with keys that no answer but a 200 may show."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from agent.model import Secret
from agent.providers.alibaba.credentials import Keys, SessionCredential
from tests.serving.endpoint import Endpoint, Reply

NAME = "oss-reader"
ROLE = "oss-reader-role"
FACTS = {"role": ROLE, "region": "eu-central-1", "zone": "eu-central-1a"}
CANARIES = ("STS.CANARY", "canary-access-key-secret", "canary-security-token")
DOCUMENT = {
    "Code": "Success",
    "LastUpdated": "2026-01-01T00:00:00Z",
    "AccessKeyId": CANARIES[0],
    "AccessKeySecret": CANARIES[1],
    "SecurityToken": CANARIES[2],
    "Expiration": "2026-01-01T01:00:00Z",
}
"""Of what was granted when the test began: twenty characters for a time, or the SDK for Node throws."""


def enrol(one: Endpoint, dialect: str, name: str = NAME, **more: Any) -> None:
    """An identity of a bucket's reader."""
    one.enrol(name, dialects=(dialect,), **{"facts": FACTS, **more})


def grant(one: Endpoint, name: str = NAME, *, lifetime: float = 3600.0) -> None:
    """What a keeper would have brought just now."""
    nowhere: Any = SimpleNamespace(files=lambda _: {})
    key, secret, token = CANARIES
    now = one.clock.now()
    one.hold(
        SessionCredential(
            keys=Keys(access_key_id=key, access_key_secret=Secret(secret), security_token=Secret(token)),
            issued_at=now,
            expires_at=now + timedelta(seconds=lifetime, milliseconds=600),
            region="eu-central-1",
            token_file=nowhere,
        ),
        name,
    )


def clean(found: Reply) -> bool:
    return not any(canary.encode() in found.raw for canary in CANARIES)
