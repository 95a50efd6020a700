"""How the doctor asks in Azure's and Alibaba Cloud's dialects, and what it shows of the answers."""

from typing import Any

import aiohttp
import pytest

from agent.clock import WallClock
from agent.doctor.endpoint_answers import summarise
from agent.doctor.endpoint_requests import ASKED, FORWARDED, Asker, Reply
from agent.envvars import ServedAt
from agent.model import Secret
from tests.serving import alibaba, azure
from tests.serving.endpoint import AUTHORIZATION, Endpoint, endpoint


async def ask(one: Endpoint, dialect: str, name: str, authorization: str = AUTHORIZATION, **more: Any) -> Reply:
    facts = one.store.profile(name).facts  # type: ignore[union-attr]
    async with aiohttp.ClientSession() as session:
        asker = Asker(session, name, Secret(authorization), facts, **more)
        return await ASKED[dialect](asker, ServedAt(dialect=dialect, base=one.url, root=one.url))


def text(dialect: str, reply: Reply, resource: str = "") -> str:
    """What it brings; empty where an SDK would miss something."""
    one = summarise(dialect, reply, resource, WallClock().now())
    return "" if one.lacking else one.text


@pytest.mark.parametrize("dialect", ["appservice", "azure-imds"])
async def test_azures_dialects_request_the_identitys_resource(dialect: str) -> None:
    async with endpoint() as one:
        azure.enrol(one, dialect, default=True)
        found = await ask(one, dialect, azure.NAME)
        assert (found.status, text(dialect, found)) == (503, "")
        assert "first credential is on the way" in found.reason
        azure.grant(one)
        found = await ask(one, dialect, azure.NAME)
        assert found.status == 200
        assert text(dialect, found, azure.VAULT).startswith("an access token until ")
        if dialect == "appservice":
            found = await ask(one, dialect, azure.NAME, "wrong")
            assert (found.status, found.reason) == (401, "X-IDENTITY-HEADER does not hold this identity's authorization")


@pytest.mark.parametrize("dialect", ["uri", "ecs"])
async def test_alibabas_address_is_shown_without_the_authorization(dialect: str) -> None:
    async with endpoint() as one:
        alibaba.enrol(one, dialect, default=True)
        found = await ask(one, dialect, alibaba.NAME)
        assert (found.status, text(dialect, found)) == (503, "")
        assert "first credential is on the way" in found.reason
        alibaba.grant(one)
        found = await ask(one, dialect, alibaba.NAME)
        assert found.status == 200
        assert text(dialect, found).startswith("a session until ")
        assert AUTHORIZATION not in found.url
        if dialect == "uri":
            assert found.url == f"{one.url}/alibaba/{alibaba.NAME}/…/credentials"
            found = await ask(one, dialect, alibaba.NAME, "wrong/../and?odd")
            assert (found.status, found.reason) == (401, "the path does not hold this identity's authorization")


@pytest.mark.parametrize("dialect", ["azure-imds", "ecs"])
async def test_a_forwarded_request_is_refused(dialect: str) -> None:
    async with endpoint() as one:
        cloud = azure if dialect == "azure-imds" else alibaba
        cloud.enrol(one, dialect, default=True)
        cloud.grant(one)
        found = await ask(one, dialect, cloud.NAME, more=FORWARDED)
        assert found.status == 403
        assert "forwarded requests are refused" in found.reason


@pytest.mark.parametrize(("body", "word"), [(b"reader", "reader"), (b"a b", ""), (b"a\n", ""), (b"\xff", ""), (b"", ""), (b"x" * 513, "")])
def test_only_a_word_becomes_a_header_or_a_path(body: bytes, word: str) -> None:
    assert Reply("http://x", 200, body).word == word


def test_every_dialect_can_be_asked() -> None:
    from agent.dialects import DIALECTS
    from agent.serving.dialects import every

    assert set(ASKED) == set(DIALECTS) == {one.name for one in every()}
