"""Azure's instance metadata service, request by request."""

from collections.abc import AsyncIterator

import pytest

from agent.errors import Rejected
from agent.model import Key
from agent.serving.dialects.azure_imds import AzureImds
from tests.fakes import START, FakeClock
from tests.serving.azure import CANARY, CLIENT, NAME, ODD, STORAGE, VAULT, clean, enrol, grant
from tests.serving.endpoint import AUTHORIZATION, Endpoint, Reply, endpoint

PATH = "/metadata/identity/oauth2/token"
QUERY = f"api-version=2018-02-01&resource={VAULT}"


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint(None, FakeClock()) as served:
        enrol(served, "azure-imds", default=True)
        grant(served)
        yield served


async def get(
    one: Endpoint, query: str = QUERY, path: str = PATH, *, method: str = "GET", metadata: str | None = "true", **headers: str
) -> Reply:
    more = {"Metadata": metadata} if metadata is not None else {}
    return await one.ask(f"{path}?{query}", method=method, authorization=None, **more, **headers)


@pytest.mark.parametrize("path", [PATH, f"{PATH}/", "/Metadata/Identity/OAuth2/Token", "/METADATA/IDENTITY/OAUTH2/TOKEN/"])
@pytest.mark.parametrize("version", ["2018-02-01", "2019-08-01", "2021-12-13"])
async def test_every_path_spelling_and_every_token_version_is_answered(one: Endpoint, path: str, version: str) -> None:
    found = await get(one, f"resource={VAULT}&api-version={version}", path)
    assert (found.status, found.headers["content-type"]) == (200, "application/json; charset=utf-8")
    assert found.json == {
        "access_token": f"{CANARY}-for-{VAULT}",
        "refresh_token": "",
        "expires_in": "3600",
        "expires_on": str(int(START.timestamp()) + 3600),
        "not_before": str(int(START.timestamp())),
        "resource": VAULT,
        "token_type": "Bearer",
        "client_id": CLIENT,
    }


async def test_the_resource_comes_back_as_it_was_sent(one: Endpoint) -> None:
    grant(one, STORAGE)
    for resource in (VAULT, f"{VAULT}/", STORAGE, STORAGE.rstrip("/")):
        found = await get(one, f"api-version=2018-02-01&resource={resource}")
        assert (found.status, found.json["resource"]) == (200, resource)


@pytest.mark.parametrize("metadata", [None, "", "True", "TRUE", "false", "1", "true, true"])
@pytest.mark.parametrize("query", ["", QUERY])
@pytest.mark.parametrize("path", [PATH, f"{PATH}/", "/metadata/instance"])
async def test_missing_header_is_400_at_once_as_probes_expect(one: Endpoint, metadata: str | None, query: str, path: str) -> None:
    enrol(one, "azure-imds", default=True)
    found = await get(one, query, path, metadata=metadata)
    assert (found.status, found.json) == (
        400,
        {"error": "invalid_request", "error_description": "Required metadata header not specified"},
    )
    assert clean(found)


async def test_probes_are_answered_before_there_is_a_credential() -> None:
    async with endpoint(None, FakeClock(), patience=30.0) as one:
        enrol(one, "azure-imds", default=True)
        assert (await get(one, "", metadata=None)).status == 400


@pytest.mark.parametrize(
    "version", ["", "2017-12-01", "2018-01-31", "latest", "2018-02-01&api-version=2018-02-01", "20180201", "2018-02-01x"]
)
async def test_a_version_without_tokens_is_refused_with_those_that_have_them(one: Endpoint, version: str) -> None:
    found = await get(one, f"api-version={version}&resource={VAULT}")
    assert found.status == 400
    assert found.json["error"] == "Bad request. api-version was not specified in the request"
    assert "2018-02-01" in found.json["newest-versions"]
    assert (await get(one, f"resource={VAULT}")).status == 400


@pytest.mark.parametrize(
    ("query", "error", "description"),
    [
        ("", "invalid_request", "Required query variable 'resource' is missing"),
        ("&resource=", "invalid_request", "Required query variable 'resource' is missing"),
        (f"&resource={VAULT}&resource={VAULT}", "invalid_request", "Required query variable 'resource' is missing"),
        (f"&resource={VAULT}&client_id=x", "invalid_request", "Identity not found"),
        (f"&resource={VAULT}&object_id=x", "invalid_request", "Identity not found"),
        (f"&resource={VAULT}&msi_res_id=/x", "invalid_request", "Identity not found"),
        (f"&resource={VAULT}&mi_res_id=/x", "invalid_request", "Identity not found"),
        ("&resource=https://graph.microsoft.com", "invalid_resource", "provider.resources"),
    ],
)
async def test_what_is_wrong_is_said_in_the_services_words(one: Endpoint, query: str, error: str, description: str) -> None:
    found = await get(one, f"api-version=2018-02-01{query}")
    assert (found.status, found.json["error"]) == (400, error)
    assert description in found.json["error_description"]
    assert clean(found)
    assert one.store.newcomers.empty()


async def test_the_identitys_own_client_id_may_be_said(one: Endpoint) -> None:
    assert (await get(one, f"{QUERY}&client_id={CLIENT.upper()}")).status == 200


@pytest.mark.parametrize(
    "path", ["/metadata/instance", "/metadata/instance/compute/location", "/metadata", "/metadata/identity", f"{PATH}//"]
)
async def test_the_rest_of_the_service_is_not_there(one: Endpoint, path: str) -> None:
    found = await get(one, "api-version=2021-02-01", path)
    assert (found.status, found.json["error"]) == (404, "not_found")


@pytest.mark.parametrize(
    "path", ["/metadata2/identity/oauth2/token", "/metadat", f"/x{PATH}", f"//{PATH}", f"/azure/{NAME}{PATH}", "/%6detadata/x"]
)
async def test_no_other_path_is_its(one: Endpoint, path: str) -> None:
    found = await get(one, path=path)
    assert (found.status, clean(found)) == (404, True)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
async def test_what_was_forwarded_is_refused_as_json(one: Endpoint, header: str) -> None:
    found = await get(one, **{header: "10.0.0.1"})
    assert (found.status, found.json["error"], clean(found)) == (403, "forbidden", True)


async def test_a_strange_host_is_refused(one: Endpoint) -> None:
    found = await get(one, Host="evil.example")
    assert (found.status, found.json["error"], clean(found)) == (403, "forbidden", True)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_only_get_is_answered(one: Endpoint, method: str) -> None:
    found = await get(one, method=method)
    assert (found.status, found.headers["allow"], clean(found)) == (405, "GET", True)


async def test_where_there_is_nothing_the_client_is_told_to_come_back(one: Endpoint) -> None:
    found = await get(one, f"api-version=2018-02-01&resource={STORAGE}")
    assert (found.status, found.headers["retry-after"], found.json["error"]) == (503, "1", "temporarily_unavailable")


async def test_a_resource_that_entra_refuses_is_an_invalid_one(one: Endpoint) -> None:
    query = f"api-version=2018-02-01&resource={ODD}"
    assert (await get(one, query)).status == 503
    one.store.attempted(Key(NAME, ODD), Rejected("vault-reader: AADSTS500011"), one.clock.now())
    found = await get(one, query)
    assert (found.status, found.json) == (400, {"error": "invalid_resource", "error_description": "vault-reader: AADSTS500011"})


async def test_only_the_default_identity_is_asked_and_no_authorization_is_wanted(one: Endpoint) -> None:
    enrol(one, "azure-imds", "another")
    grant(one, name="another")
    assert (await get(one)).status == 200
    one.store.forget(NAME)
    found = await get(one, Authorization=AUTHORIZATION)
    assert (found.status, clean(found)) == (404, True)


def test_the_patience_is_that_of_azures_dialects() -> None:
    assert AzureImds.timeout == 2.5
