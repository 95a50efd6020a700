"""Whatever is asked, of any route: no answer that is the server's own fault, no line in the log, and nothing left behind."""

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from contextlib import closing

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent.refusals import Refusal
from agent.serving.metadata import MAX_RENDERED_PER_IDENTITY
from tests.serving import azure
from tests.serving.dialect_requests import ALIBABA, AWS, DIALECTS, OTHER, SDK_REQUESTS, ask, clean, every_dialect_served
from tests.serving.endpoint import AUTHORIZATION, Endpoint, Reply, reply


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with every_dialect_served() as served:
        yield served


WORDS = """
/ // . .. latest api token meta-data iam ram security-credentials role dynamic computeMetadata v1 v1beta1 instance project
service-accounts default identity email scopes recursive azure aws alibaba appservice container uri imds credentials metadata
Metadata oauth2 token/ %2e%2e %2F %00 %ff %C3%A9 region-id zone-id placement universe attributes
"""
PARTS = st.sampled_from(WORDS.split())
VALUES = st.sampled_from(
    [
        "true", "Google", "60", "0", "-1", "21600", "9" * 30, "\xe9", "", "chunked", "A" * 56, OTHER, "100-continue", "%ff", "%00",
        "x", "%", "+", "%F0%9F%98%80", "json", "text", "a,b", azure.VAULT, azure.VAULT + "/", "2018-02-01", "2019-08-01", "default",
        "a" * 600, "a%20b",
    ]
) | st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#&"), max_size=30)  # fmt: skip
NASTY = st.sampled_from(["%ff", "%00", "%", "%F0%9F%98%80", "\xe9", "%2e%2e", "%2f", ""])
PARAMETERS = st.sampled_from(
    [
        "api-version", "resource", "client_id", "object_id", "mi_res_id", "scopes", "audience", "format", "licenses", "recursive", "alt",
        "wait_for_change", "last_etag", "x", "%ff",
    ]
)  # fmt: skip
QUERIES = st.lists(st.tuples(PARAMETERS, VALUES).map("=".join) | VALUES, max_size=4).map("&".join)
NAMES = st.sampled_from(
    [
        "Metadata", "Metadata-Flavor", "X-IDENTITY-HEADER", "Authorization", f"{AWS}-ttl-seconds", AWS, f"{ALIBABA}-ttl-seconds", ALIBABA,
        "X-Forwarded-For", "Forwarded", "X-Google-Metadata-Request", "Content-Length", "Transfer-Encoding", "Content-Encoding", "Expect",
        "Upgrade", "Accept", "If-None-Match", "Range", "Cookie", "Host",
    ]
)  # fmt: skip
METHODS = st.sampled_from(["PUT", "HEAD", "POST", "OPTIONS", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get"])
BEGINNINGS = (
    "",
    "aws/imds/imds/latest/",
    "latest/meta-data/",
    "latest/dynamic/",
    "computeMetadata/v1/",
    "metadata/",
    "alibaba/uri/",
    "azure/",
)
PATHS = (
    st.tuples(st.sampled_from(BEGINNINGS), st.lists(PARTS, max_size=5)).map(lambda parts: f"/{parts[0]}{'/'.join(parts[1])}")
    | st.sampled_from(
        [way.path.partition("?")[0] for way in SDK_REQUESTS.values()] + ["/latest/api/token", "/aws/imds/imds/latest/api/token"]
    )
    | st.text(max_size=12).map("/".__add__)
)
HOSTS = st.sampled_from(["localhost:80", "[::1]", "metadata", "evil.example", "", "127.0.0.1:x", "\xe9"])
OURS = {"127.0.0.1", "localhost:80", "[::1]", "metadata"}
BODIES = st.sampled_from(
    [
        b"Content-Length: 0\r\n\r\n", b"Content-Length: 3\r\n\r\nabc", b"Content-Length: x\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
    ]
)  # fmt: skip
SESSION = "the session token of "
Headers = list[tuple[str, str]]
Sent = tuple[str, str, str, Headers, bytes]
"""Method, target, host, headers, and either a body with its headers or nothing."""


def nearly_right(dialect: str) -> st.SearchStrategy[Sent]:
    """As its SDKs ask, but for one part of it, or for any."""
    way = SDK_REQUESTS[dialect]
    path, _, query = way.path.partition("?")
    own = [*way.headers.items(), *([(way.session[1], SESSION + dialect)] if way.session[0] else [])]
    more = st.lists(st.tuples(NAMES, VALUES), max_size=3)
    near = st.tuples(st.integers(0, path.count("/")), st.lists(PARTS | NASTY, max_size=2))
    paths = PATHS | near.map(lambda cut: "/".join([*path.split("/")[: cut[0] + 1], *cut[1]]) or "/")
    altered = st.tuples(st.sampled_from([pair.partition("=")[0] for pair in query.split("&")]), NASTY | VALUES).map(
        lambda one: "&".join(f"{one[0]}={one[1]}" if pair.startswith(one[0]) else pair for pair in query.split("&"))
    )
    queries = altered | QUERIES | QUERIES.map(lambda added: f"{query}&{added}")
    headers = more | more.map(lambda added: own + added) | VALUES.map(lambda value: [(name, value) for name, _ in own])
    usual = [st.just(one) for one in ("GET", path, query, "127.0.0.1", own, b"")]
    odd = [METHODS, paths, queries, HOSTS, headers, BODIES]
    ways = [odd, *([*usual[:place], odd[place], *usual[place + 1 :]] for place in range(len(odd)))]
    return st.one_of(*(st.tuples(*way) for way in ways)).map(lambda parts: (parts[0], f"{parts[1]}?{parts[2]}", *parts[3:]))  # type: ignore[arg-type,return-value]


REQUESTS = st.one_of(*map(nearly_right, SDK_REQUESTS))


def raw(sent: Sent, sessions: Mapping[str, str]) -> bytes:
    method, target, host, headers, body = sent
    shown = [(name, sessions.get(value, value)) for name, value in headers]
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in shown), "Connection: close"]
    return "\r\n".join([*lines, ""]).encode("utf-8", "replace") + (body or b"\r\n")


def may(sent: Sent) -> bool:
    """Whether a credential may be in the answer: the rules once more, and each by itself."""
    _, target, host, headers, _ = sent
    names = {name.lower() for name, _ in headers}
    asks_of = [way for way in SDK_REQUESTS.values() if target.partition("?")[0] == way.path.partition("?")[0]]
    owed = [(name, value) for way in asks_of for name, value in way.headers.items()]
    return bool(asks_of) and host in OURS and not names & {"x-forwarded-for", "forwarded"} and set(owed) <= set(headers)


def is_aiohttps(found: Reply) -> bool:
    """Whether aiohttp refused a request that it cannot parse, before the endpoint saw it."""
    return found.status == 400 and found.headers.get("content-type") == "text/plain; charset=utf-8"


async def answered(reader: asyncio.StreamReader, method: str = "GET") -> bytes:
    """One answer, whole; what came, if the connection ended before."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 100 "):
            return await answered(reader, method)
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return head + (b"" if method == "HEAD" else await reader.readexactly(length))
    except asyncio.IncompleteReadError as ended:
        return ended.partial


async def send(one: Endpoint, sent: Sent, sessions: Mapping[str, str]) -> Reply:
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    with closing(writer):
        writer.write(raw(sent, sessions))
        async with asyncio.timeout(60):
            return reply(await answered(reader, sent[0]))


async def test_no_request_causes_a_server_error_a_log_line_or_growth(one: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    sessions = {}
    for dialect, way in SDK_REQUESTS.items():
        if opens := way.session[0]:
            opened = await one.ask("/latest/api/token", method="PUT", authorization=None, **{opens: "600"})
            sessions[SESSION + dialect] = opened.body.decode()
    seen: set[int] = set()
    sizes: list[int] = []

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.lists(REQUESTS, min_size=15, max_size=30))
    def try_some(requests: list[Sent]) -> None:
        async def together() -> list[Reply]:
            return await asyncio.gather(*(send(one, sent, sessions) for sent in requests))

        for sent, found in zip(requests, asyncio.run_coroutine_threadsafe(together(), loop).result(20), strict=True):
            assert found.status, sent
            assert found.status < 500 or (found.status, found.headers.get("retry-after")) == (503, "1"), (sent, found.raw)
            assert found.status < 400 or found.headers.get("x-wi-agent-refusal") in set(Refusal) or is_aiohttps(found), (sent, found.raw)
            assert AUTHORIZATION.encode() not in found.raw or AUTHORIZATION in repr(sent), "of garbage, its sender is told what it was"
            assert clean(found) or (found.status == 200 and may(sent)), sent
            seen.add(found.status)
        sizes.append(sum(map(len, one.server._rendered.values())))

    await asyncio.to_thread(try_some)
    assert {200, 400, 401, 403, 404, 405} <= seen, "many kinds of answers were met"
    assert {dialect for dialect, _ in one.counters.metadata_requests} == {*DIALECTS, "none"}, "and every dialect"
    assert len([code for _, code in one.counters.metadata_requests if code == "200"]) > 3, "and not from the threshold alone"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert max(sizes) <= MAX_RENDERED_PER_IDENTITY
    for dialect in DIALECTS:
        assert (await ask(one, dialect)).status == 200, "and it serves on"


async def flood(one: Endpoint, first: int, times: int) -> None:
    """So many requests of each kind, no two alike, on one connection that stays open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)

    presented: dict[str, dict[str, str]] = {}
    sessions = {dialect: way.session for dialect, way in SDK_REQUESTS.items() if way.session[0]}
    for number in range(first, first + times):
        kinds: list[tuple[str, str, Mapping[str, str]]]
        kinds = [("PUT", "/latest/api/token", {opens: "60"}) for opens, _ in sessions.values()]
        kinds += [
            ("GET", f"{way.path}{'&' if '?' in way.path else '?'}x={number}", {**way.headers, **presented.get(dialect, {})})
            for dialect, way in SDK_REQUESTS.items()
        ]
        kinds += [("GET", way.path, {name: f"{value}{number}" for name, value in way.headers.items()}) for way in SDK_REQUESTS.values()]
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
        answers = [reply(await answered(reader)).body.decode() for _ in kinds]
        presented = {
            dialect: {presents: opened} for (dialect, (_, presents)), opened in zip(sessions.items(), answers[: len(sessions)], strict=True)
        }
    writer.close()
    await writer.wait_closed()


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
    assert len(one.counters.metadata_requests) < 40
