"""What holds in every dialect: who is refused and how, and that a herd is one request."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.model import Key
from agent.serving.dialects import every
from tests.serving.endpoint import AUTHORIZATION, Endpoint, endpoint
from tests.serving.ways import ALIBABA, AWS, DIALECTS, OTHER, WAYS, ask, clean, enrol, everything, grant


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with everything() as served:
        yield served


def test_this_is_every_dialect() -> None:
    assert {dialect.name for dialect in every()} == set(WAYS)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_its_sdks_are_answered_beside_all_others(one: Endpoint, dialect: str) -> None:
    found = await ask(one, dialect)
    assert found.status == 200
    assert not clean(found), "it is the credential"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Forwarded-Host", "X-Real-Ip", "Via"])
async def test_what_was_forwarded_is_refused(one: Endpoint, dialect: str, header: str) -> None:
    found = await ask(one, dialect, **{header: "127.0.0.1"})
    assert (found.status, clean(found)) == (403, True)
    assert ("metadata-flavor" in found.headers) is (dialect == "gce"), "in Google's every answer"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "127.0.0.1, x"])
async def test_a_strange_host_is_refused(one: Endpoint, dialect: str, host: str) -> None:
    found = await ask(one, dialect, Host=host)
    assert (found.status, clean(found)) == (403, True)


REFUSALS = {"container": 401, "imds": 401, "gce": 403, "appservice": 401, "azure-imds": 400, "ecs": 403}
STATIC = {
    "container": "Authorization",
    "imds": AWS,
    "gce": "Metadata-Flavor",
    "appservice": "X-IDENTITY-HEADER",
    "azure-imds": "Metadata",
    "ecs": ALIBABA,
}


@pytest.mark.parametrize("dialect", REFUSALS)
async def test_without_its_header_a_request_is_refused_with_the_real_servers_status(one: Endpoint, dialect: str) -> None:
    found = await ask(one, dialect, without=STATIC[dialect])
    assert (found.status, clean(found)) == (REFUSALS[dialect], True)


@pytest.mark.parametrize("dialect", [dialect for dialect, way in WAYS.items() if way.authorized])
async def test_another_identitys_authorization_is_refused(one: Endpoint, dialect: str) -> None:
    enrol(one, dialect, "other", authorization=OTHER)
    grant(one, dialect, "other")
    way = WAYS[dialect]
    wrong = {name: value.replace(AUTHORIZATION, OTHER) for name, value in way.headers.items()}
    assert (await ask(one, dialect, path=way.path.replace(AUTHORIZATION, OTHER), **wrong)).status == 401
    path = way.path.replace(f"/{dialect}/", "/other/")
    found = await ask(one, dialect, path=path)
    assert (found.status, clean(found)) == (401, True)
    assert (await ask(one, dialect, path=path.replace(AUTHORIZATION, OTHER), **wrong)).status == 200


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_a_method_that_no_sdk_uses_is_refused(one: Endpoint, dialect: str, method: str) -> None:
    found = await ask(one, dialect, method=method)
    assert (found.status, clean(found), "allow" in found.headers) == (405, True, True)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_herd_is_one_question_to_the_keeper_and_all_are_served(dialect: str) -> None:
    async with endpoint(patience=10.0) as one:
        enrol(one, dialect)
        herd = [asyncio.ensure_future(ask(one, dialect)) for _ in range(200)]
        while one.server._waiting < 200:
            await asyncio.sleep(0)
        record = one.store.record(Key(dialect))
        assert record
        assert record.asked == {"wanted"}
        assert one.store.newcomers.empty()
        grant(one, dialect)
        assert {found.status for found in await asyncio.gather(*herd)} == {200}
        assert sum(map(len, one.server._portions.values())) == 1, "rendered once"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_where_there_is_nothing_every_client_is_told_to_come_back(dialect: str) -> None:
    async with endpoint() as one:
        enrol(one, dialect)
        found = await ask(one, dialect)
        assert (found.status, found.headers["retry-after"]) == (503, "1")
