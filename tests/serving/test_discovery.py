"""What verifiers fetch, and what is exported for them."""

import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp.test_utils import RawTestServer, TestClient

from agent.config.model import IssuerBlock
from agent.errors import ConfigError
from agent.issuer import discovery
from agent.issuer.keyring import Keyring
from agent.serving.discovery import answering
from agent.settings import Address, Url
from tests.fakes import START, FakeClock

DAY = 86400.0
CONFIGURATION = "/.well-known/openid-configuration"


def block(tmp_path: Path, url: str = "https://issuer.example") -> IssuerBlock:
    return IssuerBlock(url=Url(url), listen=(Address("127.0.0.1", 0),), state=str(tmp_path / "state"), algorithm="ES256")


@asynccontextmanager
async def served(tmp_path: Path, url: str = "https://issuer.example", **lengths: float) -> AsyncIterator[tuple[Any, Keyring, FakeClock]]:
    clock = FakeClock()
    chosen = {"every": 30 * DAY, "publish_before": DAY, "longest_lifetime": 2 * DAY, **lengths}
    async with Keyring(tmp_path / "state", "ES256", **chosen, clock=clock) as keyring:
        async with TestClient(RawTestServer(answering(url, keyring.keys))) as client:
            yield client, keyring, clock


async def test_a_verifier_finds_the_keys_by_way_of_the_configuration(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, keyring, _):
        answer = await client.get(CONFIGURATION)
        assert answer.status == 200
        assert answer.content_type == "application/json"
        assert answer.headers["Cache-Control"] == "public, max-age=3600"
        found = await answer.json()
        assert found["issuer"] == "https://issuer.example"
        assert found["jwks_uri"] == "https://issuer.example/jwks"
        assert found["response_types_supported"] == ["id_token"]
        assert found["subject_types_supported"] == ["public"]
        assert found["id_token_signing_alg_values_supported"] == ["ES256"]
        answer = await client.get("/jwks")
        assert answer.headers["Cache-Control"] == "public, max-age=3600"
        assert await answer.json() == keyring.keys.public_keys()


async def test_pyjwts_own_client_verifies_a_token_with_what_is_served(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, keyring, clock):
        text = keyring.keys.sign({"sub": "it", "exp": clock.now().timestamp() + 60})
        keys = jwt.PyJWKSet.from_dict(await (await client.get("/jwks")).json())
        key = keys[jwt.get_unverified_header(text)["kid"]]
        assert jwt.decode(text, key, algorithms=["ES256"], options={"verify_exp": False})["sub"] == "it"


async def test_the_next_key_is_served_from_the_moment_it_is_published(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, keyring, clock):
        clock.jump(29 * DAY)
        await keyring.rotate()
        assert len((await (await client.get("/jwks")).json())["keys"]) == 2


async def test_head_answers_as_get_without_a_body(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, _, _):
        for path in (CONFIGURATION, "/jwks"):
            got, head = await client.get(path), await client.head(path)
            assert head.status == 200
            assert head.headers["Content-Length"] == got.headers["Content-Length"]
            assert head.headers["Cache-Control"] == got.headers["Cache-Control"]
            assert await head.read() == b""


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/jwks", 405),
        ("OPTIONS", CONFIGURATION, 405),
        ("DELETE", "/jwks", 405),
        ("GET", "/", 404),
        ("GET", "/jwks/", 404),
        ("GET", "/jwks//", 404),
        ("GET", "/%6awks", 200),
        ("GET", "/.well-known/../index.json", 404),
        ("GET", "/state/index.json", 404),
        ("POST", "/metrics", 404),
    ],
)
async def test_nothing_else_is_answered(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with served(tmp_path) as (client, _, _):
        answer = await client.request(method, path)
        assert answer.status == status
        if status != 200:
            assert (await answer.json())["code"] == status
            assert "Cache-Control" not in answer.headers
        assert ("Allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize("url", ["https://issuer.example/tenants/a", "https://issuer.example/tenants/a/"])
async def test_an_issuer_with_a_path_is_served_below_it_and_at_the_root(tmp_path: Path, url: str) -> None:
    async with served(tmp_path, url) as (client, _, _):
        found = await (await client.get("/tenants/a" + CONFIGURATION)).json()
        assert found["issuer"] == url, "exactly as in the tokens"
        assert found["jwks_uri"] == "https://issuer.example/tenants/a/jwks"
        assert (await client.get("/tenants/a/jwks")).status == 200
        assert (await client.get("/jwks")).status == 200
        assert (await client.get("/tenants/jwks")).status == 404


async def test_a_cached_copy_is_gone_before_a_key_signs_that_it_lacks(tmp_path: Path) -> None:
    async with served(tmp_path, publish_before=120.0) as (client, _, _):
        assert (await client.get("/jwks")).headers["Cache-Control"] == "public, max-age=120"


async def test_without_a_key_the_answer_is_to_come_back_and_is_not_cached(tmp_path: Path) -> None:
    closed = Keyring(tmp_path / "state", "ES256", 30 * DAY, DAY, DAY, FakeClock())
    async with TestClient(RawTestServer(answering("https://issuer.example", closed.keys))) as client:
        answer = await client.get("/jwks")
        assert (answer.status, answer.headers["Retry-After"], answer.headers["Cache-Control"]) == (503, "1", "no-store")


async def test_an_export_holds_the_next_key_long_before_it_signs(tmp_path: Path) -> None:
    clock = FakeClock()
    before = os.umask(0o077)
    try:
        exported = await discovery.export(block(tmp_path, "https://bucket.example/issuer"), tmp_path / "site", clock)
    finally:
        os.umask(before)
    assert {path.relative_to(tmp_path / "site").as_posix() for path in exported.files} == {"jwks", ".well-known/openid-configuration"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in exported.files} == {0o644}
    assert json.loads((tmp_path / "site" / CONFIGURATION[1:]).read_text())["jwks_uri"] == "https://bucket.example/issuer/jwks"
    keys = json.loads((tmp_path / "site" / "jwks").read_text())["keys"]
    assert len(keys) == 2
    assert all(not key.keys() & {"d", "p", "q", "dp", "dq", "qi", "k"} for key in keys)
    assert exported.complete_until == START + timedelta(days=60)
    async with discovery.keyring_of(block(tmp_path), clock) as keyring:
        for moment in (0, 30 * DAY, 30 * DAY - 1):
            clock.jump(moment)
            signed_by = jwt.get_unverified_header(keyring.keys.sign({"exp": clock.now().timestamp() + 60}))["kid"]
            await keyring.rotate()
            assert signed_by in {key["kid"] for key in keys}, "the copy is complete for as long as it says"


async def test_an_export_beside_a_running_agent_holds_what_the_agent_publishes(tmp_path: Path) -> None:
    clock = FakeClock()
    async with discovery.keyring_of(block(tmp_path), clock) as keyring:
        exported = await discovery.export(block(tmp_path), tmp_path / "site", clock)
        assert json.loads((tmp_path / "site" / "jwks").read_text()) == keyring.keys.public_keys()
        assert exported.complete_until == START + timedelta(days=30)
        clock.jump(29 * DAY)
        await keyring.rotate()
        await discovery.export(block(tmp_path), tmp_path / "site", clock)
        assert len(json.loads((tmp_path / "site" / "jwks").read_text())["keys"]) == 2
    assert not list((tmp_path / "site").rglob(".new*"))


async def test_an_export_that_cannot_be_written_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "site").touch()
    with pytest.raises(ConfigError, match=r"cannot write to .*site"):
        await discovery.export(block(tmp_path), tmp_path / "site", FakeClock())


async def test_an_export_from_a_damaged_state_is_refused_and_nothing_written(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "index.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"index\.json is not the index"):
        await discovery.export(block(tmp_path), tmp_path / "site", FakeClock())
    assert not (tmp_path / "site").exists()
