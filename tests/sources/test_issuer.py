"""Tokens from the agent's own issuer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import jwt
import pytest

from agent.claims import key_id
from agent.counters import Counters
from agent.errors import NotReady, Rejected
from agent.issuer.keyring import Keyring
from agent.settings import Duration
from agent.sources.issuer import RESERVED_CLAIMS, IssuerSettings, IssuerSource
from agent.toolbox import Issuer, Toolbox
from tests.fakes import START, FakeClock, settle

URL = "https://issuer.example/tenant"
DAY = 86400.0


async def no_http() -> Any:
    raise AssertionError("signing asks nobody")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START + timedelta(milliseconds=700))


@pytest.fixture
async def keyring(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Keyring]:
    async with Keyring(tmp_path / "state", "ES256", 30 * DAY, DAY, DAY, clock) as keyring:
        yield keyring


@pytest.fixture
def toolbox(clock: FakeClock, keyring: Keyring) -> Toolbox:
    return Toolbox(clock=clock, random=Random(1), counters=Counters(), http=no_http, issuer=Issuer(url=URL, keys=keyring.keys))


def claims_of(toolbox: Toolbox, text: str) -> dict[str, Any]:
    """Verified against the published keys."""
    assert toolbox.issuer
    (key,) = toolbox.issuer.keys.public_keys()["keys"]
    unchecked = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
    return jwt.decode(text, jwt.PyJWK(key), algorithms=["ES256"], options=unchecked)


async def test_a_token_of_a_lost_key_is_not_confirmed_and_of_a_retired_one_is(toolbox: Toolbox, keyring: Keyring, tmp_path: Path) -> None:
    settings = IssuerSettings(subject="demo", lifetime=Duration(3600))
    source = IssuerSource(settings, "one", toolbox)
    before = await source.fetch(["a"])
    source.confirm(before)
    assert toolbox.issuer
    toolbox.clock.jump(31 * DAY)  # type: ignore[attr-defined]
    await keyring.rotate()
    toolbox.clock.jump(DAY + 1)  # type: ignore[attr-defined]
    assert key_id((await source.fetch(["a"])).value.reveal()) != key_id(before.value.reveal())
    source.confirm(before)
    async with Keyring(tmp_path / "new", "ES256", 30 * DAY, DAY, DAY, toolbox.clock) as another:
        other = IssuerSource(settings, "one", replace(toolbox, issuer=Issuer(url=URL, keys=another.keys)))
        with pytest.raises(Rejected, match="no longer has the key that signed the token") as refused:
            other.confirm(before)
        assert "restore it" in refused.value.remedy
        assert before.value.reveal()[:20] not in str(refused.value)
    unopened = Keyring(tmp_path / "none", "ES256", 30 * DAY, DAY, DAY, toolbox.clock)
    IssuerSource(settings, "one", replace(toolbox, issuer=Issuer(url=URL, keys=unopened.keys))).confirm(before)


async def test_a_token_says_who_for_whom_and_until_when(toolbox: Toolbox) -> None:
    settings = IssuerSettings(subject="system:serviceaccount:demo:s3-reader", lifetime=Duration(60), claims={"tier": ["a", {"b": 1}]})
    token = await IssuerSource(settings, "s3-reader", toolbox).fetch(["sts.amazonaws.com"])
    issued_at = int(START.timestamp())
    assert claims_of(toolbox, token.value.reveal()) == {
        "iss": URL,
        "sub": "system:serviceaccount:demo:s3-reader",
        "aud": ["sts.amazonaws.com"],
        "iat": issued_at,
        "nbf": issued_at - 10,
        "exp": issued_at + 60,
        "jti": token.id,
        "tier": ["a", {"b": 1}],
    }
    assert (token.issuer, token.subject, token.audiences) == (URL, "system:serviceaccount:demo:s3-reader", ("sts.amazonaws.com",))
    assert (token.issued_at, token.expires_at) == (START, START + timedelta(seconds=60))
    assert token.value.reveal() not in repr(token)


async def test_each_token_is_another(toolbox: Toolbox) -> None:
    source = IssuerSource(IssuerSettings(subject="it"), "it", toolbox)
    first, second = await source.fetch(["a", "b"]), await source.fetch(["a", "b"])
    assert first.id != second.id
    assert first.audiences == ("a", "b")


async def test_claims_never_override_what_the_issuer_vouches_for(toolbox: Toolbox) -> None:
    settings = IssuerSettings(subject="it", claims=dict.fromkeys(RESERVED_CLAIMS - {"kubernetes.io"}, "forged"))
    token = await IssuerSource(settings, "it", toolbox).fetch(["a"])
    assert "forged" not in claims_of(toolbox, token.value.reveal()).values()


async def test_a_lifetime_beyond_the_issuers_is_rejected_by_name(toolbox: Toolbox) -> None:
    source = IssuerSource(IssuerSettings(subject="it", lifetime=Duration(2 * 86400)), "greedy", toolbox)
    with pytest.raises(Rejected, match=r"^greedy: .*issuer\.lifetime\.max"):
        await source.fetch(["a"])


async def test_a_claim_that_is_no_json_is_rejected_by_name(toolbox: Toolbox) -> None:
    source = IssuerSource(IssuerSettings(subject="it", claims={"since": START.date()}), "dated", toolbox)
    with pytest.raises(Rejected, match=r"^dated: source\.claims.*quotes"):
        await source.fetch(["a"])


async def test_without_an_issuer_it_is_not_ready(toolbox: Toolbox) -> None:
    with pytest.raises(NotReady, match=r"^lost: there is no issuer"):
        await IssuerSource(IssuerSettings(subject="it"), "lost", replace(toolbox, issuer=None)).fetch(["a"])


async def test_without_a_key_it_is_not_ready_by_name(toolbox: Toolbox, tmp_path: Path) -> None:
    closed = Keyring(tmp_path / "other", "ES256", 30 * DAY, DAY, DAY, toolbox.clock)
    with pytest.raises(NotReady, match=r"^early: the issuer has no key yet"):
        await IssuerSource(IssuerSettings(subject="it"), "early", replace(toolbox, issuer=Issuer(url=URL, keys=closed.keys))).fetch(["a"])


async def test_only_the_clock_makes_its_tokens_old(toolbox: Toolbox) -> None:
    waiting = asyncio.ensure_future(IssuerSource(IssuerSettings(subject="it"), "it", toolbox).changed())
    await settle()
    assert not waiting.done()
    waiting.cancel()
