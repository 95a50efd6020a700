"""What holds in every dialect: who is refused, that a herd is one request, and that nothing that is sent does harm."""

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.gcp.credential import AccessToken
from agent.model import Key, Secret
from agent.serving.dialects import every
from agent.serving.metadata import PORTIONS
from tests.serving import alibaba, azure
from tests.serving.endpoint import AUTHORIZATION, CANARIES, Endpoint, Reply, endpoint

OTHER = "authorization-of-another-identity"
GOOGLES = "canary-google-token"
SECRETS = (*CANARIES, *alibaba.CANARIES, azure.CANARY, GOOGLES)


@dataclass(frozen=True)
class Way:
    """To one identity's credential."""

    path: str
    provider: str
    headers: Mapping[str, str] = field(default_factory=dict)
    session: tuple[str, str] = ("", "")
    """Names of the headers that ask for a session token and present it."""
    authorized: bool = False


AWS, ALIBABA = "X-aws-ec2-metadata-token", "X-aliyun-ecs-metadata-token"
WAYS = {
    "container": Way("/aws/container/credentials", "aws", {"Authorization": AUTHORIZATION}, authorized=True),
    "imds": Way("/latest/meta-data/iam/security-credentials/role", "aws", session=(f"{AWS}-ttl-seconds", AWS)),
    "gce": Way("/computeMetadata/v1/instance/service-accounts/default/token", "gcp", {"Metadata-Flavor": "Google"}),
    "appservice": Way(
        f"/azure/appservice/token?api-version=2019-08-01&resource={azure.VAULT}",
        "azure",
        {"X-IDENTITY-HEADER": AUTHORIZATION},
        authorized=True,
    ),
    "azure-imds": Way(f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={azure.VAULT}", "azure", {"Metadata": "true"}),
    "uri": Way(f"/alibaba/uri/{AUTHORIZATION}/credentials", "alibaba", authorized=True),
    "ecs": Way("/latest/meta-data/ram/security-credentials/role", "alibaba", session=(f"{ALIBABA}-ttl-seconds", ALIBABA)),
}
DIALECTS = list(WAYS)


def enrol(one: Endpoint, dialect: str, name: str = "", **more: Any) -> None:
    facts = {**azure.FACTS, "role": "role", "region": "eu-west-1", "email": "a@b.iam.gserviceaccount.com"}
    one.enrol(name or dialect, dialects=(dialect,), default=not name, facts=facts, **more)


def grant(one: Endpoint, dialect: str, name: str = "") -> None:
    name = name or dialect
    match WAYS[dialect].provider:
        case "aws":
            one.grant(name)
        case "azure":
            azure.grant(one, name=name)
        case "alibaba":
            alibaba.grant(one, name)
        case _:
            issued = one.clock.now()
            more: Any = {"account": "", "token_file": SimpleNamespace(files=lambda _: {})}
            expires = issued + timedelta(hours=1)
            one.hold(AccessToken(token=Secret(GOOGLES), issued_at=issued, expires_at=expires, scopes=(), **more), name)


async def ask(one: Endpoint, dialect: str, *, method: str = "GET", without: str = "", path: str = "", **more: str) -> Reply:
    """As its SDKs do, but for what is said."""
    way = WAYS[dialect]
    headers = {name: value for name, value in way.headers.items() if name != without}
    opens, presents = way.session
    if opens and without != presents:
        opened = await one.ask("/latest/api/token", method="PUT", authorization=None, **{opens: "60"})
        headers[presents] = opened.body.decode()
    return await one.ask(path or way.path, method=method, authorization=None, **{**headers, **more})


def clean(found: Reply) -> bool:
    return not any(secret.encode() in found.raw for secret in SECRETS)


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint() as served:
        for dialect in DIALECTS:
            enrol(served, dialect)
            grant(served, dialect)
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


WORDS = """
/ // . .. latest api token meta-data iam ram security-credentials role dynamic computeMetadata v1 v1beta1 instance project
service-accounts default identity email scopes recursive azure aws alibaba appservice container uri imds credentials metadata
Metadata oauth2 token/ %2e%2e %2F %00 %ff %C3%A9 region-id zone-id placement universe attributes é
"""
PARTS = st.sampled_from(WORDS.split()) | st.text(max_size=8)
QUERIES = st.sampled_from(
    [
        "", "?", "?resource=", f"?api-version=2018-02-01&resource={azure.VAULT}", "?api-version=2019-08-01&resource=x&client_id=%ff",
        "?recursive=true&alt=json", "?alt=text", "?recursive=x", "?scopes=a,b", "?scopes=%00", "?audience=x&format=full", "?audience=",
        "?wait_for_change=true&last_etag=x&timeout_sec=1", "?%ff=%ff&&==", "?resource=%F0%9F%98%80", "?" + "a=b&" * 50,
    ]
) | st.text(max_size=20).map("?".__add__)  # fmt: skip
NAMES = st.sampled_from(
    [
        "Metadata", "Metadata-Flavor", "X-IDENTITY-HEADER", "Authorization", f"{AWS}-ttl-seconds", AWS, f"{ALIBABA}-ttl-seconds", ALIBABA,
        "X-Forwarded-For", "X-Google-Metadata-Request", "Content-Length", "Transfer-Encoding", "Expect", "Accept", "If-None-Match", "Range",
    ]
)  # fmt: skip
VALUES = st.sampled_from(
    ["true", "Google", "60", "0", "-1", "21600", "9" * 30, "é", "", "chunked", "A" * 56, OTHER, "100-continue"]
) | st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30)
METHODS = st.sampled_from(["GET", "GET", "GET", "GET", "PUT", "HEAD", "POST", "OPTIONS"])
PATHS = st.lists(PARTS, max_size=7).map(lambda parts: "/" + "/".join(parts)) | st.sampled_from(
    [way.path for way in WAYS.values() if not way.authorized]
)
REQUESTS = st.tuples(METHODS, PATHS, QUERIES, st.lists(st.tuples(NAMES, VALUES), max_size=4))


def raw(request: tuple[str, str, str, list[tuple[str, str]]]) -> bytes:
    method, path, query, headers = request
    lines = [
        f"{method} {path}{query} HTTP/1.1",
        "Host: 127.0.0.1",
        *(f"{name}: {value}" for name, value in headers),
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("utf-8", "replace")


@pytest.mark.timeout(60)
async def test_no_request_to_any_route_is_the_servers_fault_fills_the_log_or_makes_it_larger(
    one: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    seen: list[int] = []
    sizes: list[int] = []

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(REQUESTS, min_size=10, max_size=30))
    def try_some(requests: list[tuple[str, str, str, list[tuple[str, str]]]]) -> None:
        async def together() -> list[Reply]:
            return await asyncio.gather(*(one.send(raw(request), quiet=0.3) for request in requests))

        for request, found in zip(requests, asyncio.run_coroutine_threadsafe(together(), loop).result(20), strict=True):
            assert found.status < 500 or (found.status, found.headers.get("retry-after")) == (503, "1"), (request, found.raw)
            assert found.status != 200 or AUTHORIZATION.encode() not in found.raw
            seen.append(found.status)
        sizes.append(sum(map(len, one.server._portions.values())))

    await asyncio.to_thread(try_some)
    assert {200, 400, 403, 404, 405} <= set(seen), "many kinds of answers were met"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert max(sizes) <= PORTIONS
    for dialect in DIALECTS:
        assert (await ask(one, dialect)).status == 200, "and it serves on"


async def flood(one: Endpoint, first: int, times: int) -> None:
    """So many requests of each kind, no two alike, on one connection that stays open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)

    async def answer() -> str:
        head = await reader.readuntil(b"\r\n\r\n")
        return (await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))).decode()

    presented: dict[str, dict[str, str]] = {}
    sessions = {dialect: way.session for dialect, way in WAYS.items() if way.session[0]}
    for number in range(first, first + times):
        kinds: list[tuple[str, str, Mapping[str, str]]]
        kinds = [("PUT", "/latest/api/token", {opens: "60"}) for opens, _ in sessions.values()]
        kinds += [
            ("GET", f"{way.path}{'&' if '?' in way.path else '?'}x={number}", {**way.headers, **presented.get(dialect, {})})
            for dialect, way in WAYS.items()
        ]
        kinds += [("GET", way.path, {name: f"{value}{number}" for name, value in way.headers.items()}) for way in WAYS.values()]
        kinds += [
            ("GET", f"/aws/nobody-{number}/credentials", {}),
            ("GET", f"/{number}/x", {"Host": f"evil-{number}"}),
            ("GET", f"/alibaba/uri/wrong-{number}/credentials", {}),
            ("GET", f"/latest/meta-data/{number}", {AWS: f"{number:056}"}),
            ("GET", "/latest/meta-data/ram/", {ALIBABA: f"{number:056}"}),
            ("GET", f"/computeMetadata/v1/instance/attributes/{number}", {"Metadata-Flavor": "Google"}),
            ("GET", f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://{number}.example", {"Metadata": "true"}),
        ]
        for index, (method, target, headers) in enumerate(kinds):
            all_of_them = {"Host": f"127.0.0.1:{number * len(kinds) + index}", **headers}
            lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in all_of_them.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode())
        answers = [await answer() for _ in kinds]
        presented = {
            dialect: {presents: opened} for (dialect, (_, presents)), opened in zip(sessions.items(), answers[: len(sessions)], strict=True)
        }
    writer.close()
    await writer.wait_closed()


@pytest.mark.timeout(60)
async def test_no_request_leaves_anything_behind(one: Endpoint) -> None:
    """What is remembered is bounded, and full before the measurement begins. 7000 requests follow; a dictionary that any of their kinds
    made larger would show."""
    await flood(one, 0, 300)
    gc.collect()
    tracemalloc.start()
    try:
        await flood(one, 1000, 50)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await flood(one, 2000, 330)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 150_000, f"{grown} bytes"
    assert len(one.tally.metadata_requests) < 40
