"""Azure identities at the metadata endpoint, with tokens that no answer but a 200 may show."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from agent.model import Key, Secret
from agent.providers.azure.credentials import AccessToken
from agent.variants import facts
from tests.serving.endpoint import Endpoint, Reply

NAME = "vault-reader"
CLIENT = "7d1a0c5e-8f0c-4f7a-9a55-0d8c3f1b2a90"
VAULT, STORAGE, ODD = "https://vault.azure.net", "https://storage.azure.com/", "api://a-of-our-own"
FACTS = facts(CLIENT, VAULT, (STORAGE, ODD))
CANARY = "canary-access-token"


def enrol(one: Endpoint, dialect: str, name: str = NAME, **more: Any) -> None:
    """An identity of a vault's reader, who may ask for two more resources."""
    one.enrol(name, dialects=(dialect,), margin=600.0, facts=FACTS, **more)


def grant(one: Endpoint, variant: str = "", *, name: str = NAME, lifetime: float = 3600.0) -> AccessToken:
    """What a keeper would have brought just now."""
    nowhere: Any = SimpleNamespace(files=lambda _: {})
    now = one.clock.now()
    token = AccessToken(
        value=Secret(f"{CANARY}-for-{variant or VAULT}"),
        issued_at=now,
        expires_at=now + timedelta(seconds=lifetime),
        resource=variant or VAULT,
        token_file=nowhere,
        client_id=CLIENT,
    )
    if one.store.record(Key(name, variant)) is None:
        one.store.open_variant(Key(name, variant))
        one.store.newcomers.get_nowait()
    one.hold(token, name, variant)
    return token


def clean(found: Reply) -> bool:
    return CANARY.encode() not in found.raw
