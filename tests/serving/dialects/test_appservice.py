"""Azure App Service's token endpoint, request by request."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from agent.errors import Rejected, Unavailable
from agent.model import Key
from agent.serving.dialects.appservice import AppService
from tests.fakes import START, FakeClock
from tests.serving.azure import CANARY, CLIENT, NAME, ODD, STORAGE, VAULT, clean, enrol, grant
from tests.serving.endpoint import AUTHORIZATION, Endpoint, Reply, endpoint

VERSION = "2019-08-01"


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint(None, FakeClock()) as served:
        enrol(served, "appservice")
        grant(served)
        yield served


async def get(
    one: Endpoint,
    resource: str | None = VAULT,
    *more: str,
    version: str | None = VERSION,
    header: str | None = AUTHORIZATION,
    name: str = NAME,
    method: str = "GET",
    **headers: str,
) -> Reply:
    query = [f"api-version={version}"] if version is not None else []
    query += [f"resource={quote(resource, safe='')}"] if resource is not None else []
    shown = {"X-IDENTITY-HEADER": header} if header is not None else {}
    path = f"/azure/{name}/token?{'&'.join([*query, *more])}"
    return await one.ask(path, method=method, authorization=None, **shown, **headers)


async def test_the_answer_has_every_member_that_any_sdk_wants_and_numbers_as_text(one: Endpoint) -> None:
    one.clock.jump(100.5)  # type: ignore[attr-defined]
    found = await get(one)
    assert (found.status, found.headers["content-type"], found.headers["cache-control"]) == (
        200,
        "application/json; charset=utf-8",
        "no-store",
    )
    assert found.json == {
        "access_token": f"{CANARY}-for-{VAULT}",
        "refresh_token": "",
        "expires_in": "3499",
        "expires_on": str(int(START.timestamp()) + 3600),
        "not_before": str(int(START.timestamp())),
        "resource": VAULT,
        "token_type": "Bearer",
        "client_id": CLIENT,
    }


@pytest.mark.parametrize(
    ("resource", "variant"),
    [(VAULT, ""), (VAULT + "/", ""), (STORAGE, STORAGE), (STORAGE.rstrip("/"), STORAGE), (ODD, ODD), (ODD + "/", ODD)],
)
async def test_resource_is_returned_as_sent_with_or_without_final_slash(one: Endpoint, resource: str, variant: str) -> None:
    grant(one, variant)
    found = await get(one, resource)
    assert (found.status, found.json["resource"]) == (200, resource)
    assert found.json["access_token"] == f"{CANARY}-for-{variant or VAULT}"
    again = await get(one, VAULT)
    assert again.json["resource"] == VAULT, "what was rendered for one is not served to another"


@pytest.mark.parametrize(
    "resource",
    [
        "https://graph.microsoft.com",
        VAULT.upper(),
        f"{VAULT}//",
        f"{VAULT}/.default",
        f" {VAULT}",
        "x",
        "/",
        f"{VAULT} {STORAGE}",
        "\x00",
        "é",
    ],
)
async def test_unconfigured_resource_is_refused_and_requested_nowhere(one: Endpoint, resource: str) -> None:
    found = await get(one, resource)
    assert (found.status, found.json["statusCode"]) == (400, 400)
    assert "provider.resources" in found.json["message"]
    assert clean(found)
    assert one.store.newcomers.empty()


async def test_without_a_resource_or_with_two_nothing_is_answered(one: Endpoint) -> None:
    for found in (await get(one, None), await get(one, ""), await get(one, VAULT, f"resource={VAULT}")):
        assert (found.status, found.json["statusCode"]) == (400, 400)
        assert clean(found)


@pytest.mark.parametrize("version", [None, "", "2017-09-01", "2018-02-01", "x"])
async def test_another_version_is_refused(one: Endpoint, version: str | None) -> None:
    found = await get(one, version=version)
    assert (found.status, found.json) == (400, {"statusCode": 400, "message": f"api-version has to be {VERSION}"})


async def test_the_identitys_own_client_id_may_be_said_and_no_other(one: Endpoint) -> None:
    for more in (f"client_id={CLIENT}", f"client_id={CLIENT.upper()}", "client_id="):
        assert (await get(one, VAULT, more)).status == 200
    strangers = (
        "client_id=00000000-0000-0000-0000-000000000000",
        f"client_id={CLIENT}&client_id=x",
        "object_id=x",
        "mi_res_id=/x",
        "principal_id=x",
    )
    for more in (*strangers, "msi_res_id=/subscriptions/x"):
        found = await get(one, VAULT, more)
        assert (found.status, found.json["message"]) == (400, "Identity not found")
        assert clean(found)


@pytest.mark.parametrize(
    "header", [None, "", "wrong", f"Bearer {AUTHORIZATION}", AUTHORIZATION[:-1], f"{AUTHORIZATION}x", AUTHORIZATION.upper()]
)
async def test_missing_authorization_is_401_before_any_other_check(one: Endpoint, header: str | None) -> None:
    for found in (await get(one, header=header), await get(one, None, version=None, header=header)):
        assert (found.status, found.json["statusCode"]) == (401, 401)
        assert clean(found)


async def test_other_headers_and_other_identities_authorizations_are_401(one: Endpoint) -> None:
    enrol(one, "appservice", "another", authorization="authorization-of-another")
    grant(one, name="another")
    assert (await get(one, header=None, Authorization=AUTHORIZATION)).status == 401
    assert (await get(one, header="authorization-of-another")).status == 401
    assert (await get(one, name="another")).status == 401
    assert (await get(one, name="another", header="authorization-of-another")).status == 200


async def test_two_headers_are_refused_even_where_one_is_right(one: Endpoint) -> None:
    raw = f"GET /azure/{NAME}/token?api-version={VERSION}&resource={VAULT} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    found = await one.send(f"{raw}X-IDENTITY-HEADER: {AUTHORIZATION}\r\nX-IDENTITY-HEADER: wrong\r\n\r\n".encode())
    assert found.status == 401
    assert clean(found)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
async def test_what_was_forwarded_is_refused_as_json(one: Endpoint, header: str) -> None:
    found = await get(one, **{header: "10.0.0.1"})
    assert (found.status, found.json["statusCode"]) == (403, 403)
    assert clean(found)


async def test_a_strange_host_is_refused(one: Endpoint) -> None:
    found = await get(one, Host="evil.example")
    assert (found.status, found.json["statusCode"], clean(found)) == (403, 403, True)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_only_get_is_answered(one: Endpoint, method: str) -> None:
    found = await get(one, method=method)
    assert (found.status, found.headers["allow"], clean(found)) == (405, "GET", True)


async def test_who_is_not_served_so_is_not_there(one: Endpoint) -> None:
    one.enrol("elsewhere", dialects=("azure-imds",))
    for name in ("nobody", "elsewhere", ""):
        found = await get(one, name=name)
        assert (found.status, found.json["statusCode"]) == (404, 404)
    assert (await one.ask(f"/azure/{NAME}/tokens", authorization=None)).status == 404
    assert (await one.ask(f"/azure/{NAME}/token/x", authorization=None)).status == 404


async def test_a_resource_asked_for_at_run_time_is_fetched_once_for_a_herd(one: Endpoint) -> None:
    for dialect in one.server._dialects.values():
        dialect.timeout = 5.0
    herd = [asyncio.ensure_future(get(one, STORAGE if number % 2 else STORAGE.rstrip("/"))) for number in range(40)]
    assert await one.store.newcomers.get() == Key(NAME, STORAGE)
    while one.server._waiting < 40:
        await asyncio.sleep(0)
    assert one.store.newcomers.empty()
    grant(one, STORAGE)
    answers = await asyncio.gather(*herd)
    assert {found.status for found in answers} == {200}
    assert {found.json["resource"] for found in answers} == {STORAGE, STORAGE.rstrip("/")}


async def test_where_there_is_nothing_the_client_is_told_to_come_back(one: Endpoint) -> None:
    enrol(one, "appservice", "new")
    one.store.attempted(Key("new"), Unavailable("new: entra is away"), one.clock.now())
    found = await get(one, name="new")
    assert (found.status, found.headers["retry-after"], found.json["statusCode"]) == (503, "1", 503)
    assert "entra is away" in found.json["message"]


async def test_resource_that_entra_refuses_is_400_while_the_identity_works(one: Endpoint) -> None:
    assert (await get(one, ODD)).status == 503
    one.store.attempted(Key(NAME, ODD), Rejected("vault-reader: AADSTS500011"), one.clock.now())
    found = await get(one, ODD)
    assert (found.status, found.json) == (400, {"statusCode": 400, "message": "vault-reader: AADSTS500011"})


async def test_a_token_that_has_ended_is_not_handed_out(one: Endpoint) -> None:
    one.clock.jump(3599.5)  # type: ignore[attr-defined]
    assert (await get(one)).json["expires_in"] == "0"
    one.clock.jump(0.5)  # type: ignore[attr-defined]
    found = await get(one)
    assert (found.status, clean(found)) == (503, True)


async def test_the_patience_is_that_of_azures_dialects() -> None:
    assert AppService.timeout == 2.5


async def test_no_header_and_no_query_makes_a_metric_or_a_rendering_more(one: Endpoint) -> None:
    for number in range(60):
        await get(one, f"https://vault.azure.net{number}", header=f"wrong-{number}")
        await get(one, f"https://vault.azure.net{number}")
        await get(one, VAULT, f"client_id={number}")
    assert set(one.counters.metadata_requests) == {("appservice", "400"), ("appservice", "401")}
    assert not one.server._rendered


async def test_a_question_asked_before_is_answered_by_the_configuration_of_now(one: Endpoint) -> None:
    grant(one, STORAGE)
    assert (await get(one, STORAGE)).status == 200
    enrol(one, "appservice")  # a reload, after which the resource is not allowed any more
    one.enrol(NAME, dialects=("appservice",), facts={"client-id": CLIENT, "resource": VAULT})
    assert (await get(one, STORAGE)).status == 400
    for number in range(200):
        await get(one, VAULT, f"x={number}")
    questions = one.server._dialects["appservice"]._queries  # type: ignore[attr-defined]
    assert len(questions._known) <= 64
