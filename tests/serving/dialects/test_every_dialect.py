"""What holds in every dialect: who is refused and how, and that a herd is one request."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.model import Key
from agent.refusals import Refusal
from agent.serving.dialects import every
from tests.serving.dialect_requests import ALIBABA, AWS, DIALECTS, OTHER, SDK_REQUESTS, ask, clean, enrol, every_dialect_served, grant
from tests.serving.endpoint import AUTHORIZATION, Endpoint, Reply, endpoint


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with every_dialect_served() as served:
        yield served


def test_this_is_every_dialect() -> None:
    assert {dialect.name for dialect in every()} == set(SDK_REQUESTS)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_its_sdks_are_answered_beside_all_others(one: Endpoint, dialect: str) -> None:
    found = await ask(one, dialect)
    assert found.status == 200
    assert not clean(found), "it is the credential"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Forwarded-Host", "X-Real-Ip", "Via"])
async def test_forwarded_request_is_refused(one: Endpoint, dialect: str, header: str) -> None:
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
async def test_missing_header_is_refused_with_the_real_servers_status(one: Endpoint, dialect: str) -> None:
    found = await ask(one, dialect, without=STATIC[dialect])
    assert (found.status, clean(found)) == (REFUSALS[dialect], True)


JSON = {"content-type": "application/json", "cache-control": "no-store"}
AZURES = {"content-type": "application/json; charset=utf-8", "cache-control": "no-store"}
PLAIN = {"content-type": "text/plain", "cache-control": "no-store"}
GOOGLES_HEADERS = {
    "metadata-flavor": "Google", "server": "GKE Metadata Server", "x-xss-protection": "0", "x-frame-options": "SAMEORIGIN",
    "cache-control": "no-store", "content-type": "text/html; charset=UTF-8",
}  # fmt: skip
SHAPES: dict[str, tuple[dict[str, str], Callable[[int, str], bytes]]] = {
    "container": (JSON, lambda status, why: dumped(code=CODES.get(status, "NotReady"), message=why)),
    "imds": ({**PLAIN, "server": "EC2ws"}, lambda _, why: f"{why}\n".encode()),
    "gce": (GOOGLES_HEADERS, lambda _, why: f"{why}\n".encode()),
    "appservice": (AZURES, lambda status, why: dumped(statusCode=status, message=why)),
    "azure-imds": ({**AZURES, "server": "IMDS"}, lambda status, why: dumped(error=ERRORS[status], error_description=why)),
    "uri": (JSON, lambda status, why: dumped(Code=CODES.get(status, "NotReady").replace("AccessDenied", "Unauthorized"), Message=why)),
    "ecs": (PLAIN, lambda _, why: f"{why}\n".encode()),
}
"""An error's headers and body, as this dialect's clients know them."""
CODES = {401: "AccessDenied", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed"}
ERRORS = {400: "invalid_request", 403: "forbidden", 404: "not_found", 405: "method_not_allowed", 503: "temporarily_unavailable"}
REASONS = {
    "container": "the Authorization header does not hold this identity's authorization",
    "imds": "a valid session token is required: request one with PUT latest/api/token",
    "gce": 'Missing required header "Metadata-Flavor": "Google"',
    "appservice": "X-IDENTITY-HEADER does not hold this identity's authorization",
    "azure-imds": "Required metadata header not specified",
    "ecs": "a valid session token is required: request one with PUT /latest/api/token",
}
ALLOWED = {
    "container": "GET",
    "imds": "GET, HEAD, PUT",
    "gce": "GET, HEAD",
    "appservice": "GET",
    "azure-imds": "GET",
    "uri": "GET",
    "ecs": "GET, HEAD, PUT",
}


def dumped(**members: object) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()


def is_refused(found: Reply, dialect: str, status: int, why: str, **more: str) -> None:
    """With all that a client may read of it, and with nothing else."""
    headers, body = SHAPES[dialect]
    not_its_own = {"date", "content-length", "connection"} | (set() if "server" in headers else {"server"})
    assert (found.status, found.body) == (status, body(status, why))
    code = {"x-wi-agent-refusal": found.headers["x-wi-agent-refusal"]}
    assert {name: value for name, value in found.headers.items() if name not in not_its_own} == headers | more | code
    assert code["x-wi-agent-refusal"] in set(Refusal)
    assert clean(found)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_refusal_has_the_body_and_the_headers_that_its_clients_know(one: Endpoint, dialect: str) -> None:
    is_refused(await ask(one, dialect, X_Forwarded_For="10.0.0.1"), dialect, 403, "forwarded requests are refused (X-Forwarded-For)")
    is_refused(await ask(one, dialect, Host="evil.example"), dialect, 403, "this is not the host that was asked for")
    no_host = f"GET {SDK_REQUESTS[dialect].path} HTTP/1.0\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in SDK_REQUESTS[dialect].headers.items()
    )
    is_refused(await one.send(f"{no_host}\r\n".encode()), dialect, 403, "this is not the host that was asked for")
    only = {"imds": "only GET, and PUT of a session token", "ecs": "only GET, and PUT of a session token"}.get(dialect, "only GET")
    is_refused(await ask(one, dialect, method="POST"), dialect, 405, only, allow=ALLOWED[dialect])
    if dialect in STATIC:
        challenge = {"www-authenticate": AWS} if dialect == "imds" else {}
        is_refused(await ask(one, dialect, without=STATIC[dialect]), dialect, REFUSALS[dialect], REASONS[dialect], **challenge)
        if dialect != "ecs":
            found = await ask(one, dialect, without=STATIC[dialect], **{STATIC[dialect]: "wrong"})
            is_refused(found, dialect, REFUSALS[dialect], REASONS[dialect], **challenge)
    else:
        wrong = await ask(one, dialect, path=SDK_REQUESTS[dialect].path.replace(AUTHORIZATION, "wrong"))
        is_refused(wrong, dialect, 401, "the path does not hold this identity's authorization")
    one.store.drop(Key(dialect))
    enrol(one, dialect)
    found = await ask(one, dialect)
    is_refused(found, dialect, 503, f"{dialect}: nothing to hand out yet: its first credential is on the way", **{"retry-after": "1"})


@pytest.mark.parametrize("dialect", [dialect for dialect, way in SDK_REQUESTS.items() if way.authorized])
async def test_another_identitys_authorization_is_refused(one: Endpoint, dialect: str) -> None:
    enrol(one, dialect, "other", authorization=OTHER)
    grant(one, dialect, "other")
    way = SDK_REQUESTS[dialect]
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
        assert sum(map(len, one.server._rendered.values())) == 1, "rendered once"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_where_there_is_nothing_every_client_is_told_to_come_back(dialect: str) -> None:
    async with endpoint() as one:
        enrol(one, dialect)
        found = await ask(one, dialect)
        assert (found.status, found.headers["retry-after"]) == (503, "1")


def test_documentation_lists_every_refusal_code() -> None:
    table = (Path(__file__).parents[3] / "docs" / "clients.md").read_text().partition("## Errors")[2]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == list(Refusal)
