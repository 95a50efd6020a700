"""The way out to a cloud: what goes wrong on it is told by its reaction, and nothing of the request with it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from agent.errors import RefreshError, Rejected, Unavailable
from agent.http.client import MAX_BODY_BYTES, MAX_ERROR_BODY_BYTES, HttpClient
from agent.settings import Url
from tests.servers.site import Site
from tests.servers.tls import certificate

BODY = b"assertion=canary-body"


class Nowhere(AbstractResolver):
    """Knows no name."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> Any:
        raise OSError("no such name")

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Nowhere())) as session:
        yield session


def wire(session: aiohttp.ClientSession, **more: Any) -> HttpClient:
    async def http() -> aiohttp.ClientSession:
        return session

    return HttpClient(http, whose="one", **more)


async def failure(session: aiohttp.ClientSession, url: str, **more: Any) -> RefreshError:
    with pytest.raises(RefreshError) as caught:
        await wire(session, **more).send("POST", url, headers={"X-Secret": "canary-header"}, body=BODY)
    assert caught.value.message.startswith("one: ")
    error: BaseException | None = caught.value
    while error is not None:
        assert "canary" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__
    return caught.value


class Parrot(Site):
    """Says what it was sent, to so many bytes, with that status."""

    size = 0
    status = 200

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=self.status, body=await request.read() + b"x" * self.size)


async def test_an_answer_of_any_other_status_is_the_callers_to_judge(http: aiohttp.ClientSession) -> None:
    async with Parrot() as site:
        for status in (200, 204, 400, 403, 429, 503):
            site.status = status
            answer = await wire(http).send("POST", f"{site.url}/path%2Fx?q=1", body=BODY)
            assert answer.status == status
        assert answer.body == BODY


async def test_an_answer_is_read_up_to_its_limit_and_no_further(http: aiohttp.ClientSession) -> None:
    async with Parrot() as site:
        site.size = MAX_BODY_BYTES - len(BODY)
        assert len((await wire(http).send("POST", site.url, body=BODY)).body) == MAX_BODY_BYTES
        site.size += 1
        error = await failure(http, site.url)
    assert isinstance(error, Unavailable)
    assert "more than 256 KiB" in error.message


async def test_a_name_that_nobody_knows_is_unavailable(http: aiohttp.ClientSession) -> None:
    error = await failure(http, "https://user:canary@login.example/x")
    assert isinstance(error, Unavailable)
    assert "login.example has no address" in error.message


async def test_a_proxy_that_is_not_there_is_unavailable(http: aiohttp.ClientSession) -> None:
    async with Site() as gone:
        port = gone.port
    error = await failure(http, "https://login.example", proxy=Url(f"http://user:canary@127.0.0.1:{port}"))
    assert isinstance(error, Unavailable)
    assert "the proxy could not reach login.example" in error.message


@pytest.mark.parametrize(("status", "kind"), [(407, Rejected), (403, Rejected), (408, Unavailable), (429, Unavailable), (502, Unavailable)])
async def test_a_proxy_that_refuses_is_told_from_one_in_trouble(http: aiohttp.ClientSession, status: int, kind: type[RefreshError]) -> None:
    async with Parrot() as proxy:
        proxy.status = status
        error = await failure(http, "https://login.example", proxy=Url(proxy.url))
    assert type(error) is kind


async def test_somebody_who_speaks_no_tls_is_unavailable(http: aiohttp.ClientSession) -> None:
    async with Parrot() as site:
        error = await failure(http, site.url.replace("http://", "https://"))
    assert isinstance(error, Unavailable)
    assert "TLS handshake" in error.message


async def test_a_connection_that_breaks_is_unavailable(http: aiohttp.ClientSession) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        error = await failure(http, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert isinstance(error, Unavailable)
    assert "broke off the exchange" in error.message


@pytest.mark.parametrize("target", ["http://[", "//", "", "relative", "http://\x00"])
async def test_a_redirect_to_nowhere_is_refused_like_any(http: aiohttp.ClientSession, target: str) -> None:
    class Elsewhere(Site):
        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": target.replace("\x00", "")})

    async with Elsewhere() as site:
        assert isinstance(await failure(http, site.url), Rejected)
        assert site.requests == 1


async def test_authorities_that_are_replaced_are_read_again(http: aiohttp.ClientSession, tmp_path: Path) -> None:
    context, pem = certificate(tmp_path, "127.0.0.1")
    chosen = tmp_path / "ca.pem"
    async with Parrot(context) as site:
        out = wire(http, ca_file=str(chosen))
        with pytest.raises(Rejected, match="No such file"):
            await out.send("GET", site.url)
        chosen.write_text("not PEM")
        with pytest.raises(Rejected, match="not a PEM file"):
            await out.send("GET", site.url)
        chosen.unlink()
        chosen.write_bytes(Path(pem).read_bytes())
        assert (await out.send("GET", site.url)).status == 200


async def test_an_error_longer_than_its_limit_keeps_its_status_and_headers(http: aiohttp.ClientSession) -> None:
    async with Parrot() as site:
        site.status = 503
        site.size = MAX_ERROR_BODY_BYTES - len(BODY)
        assert len((await wire(http).send("POST", site.url, body=BODY)).body) == MAX_ERROR_BODY_BYTES
        site.size += 1
        answer = await wire(http).send("POST", site.url, body=BODY)
    assert (answer.status, answer.body) == (503, b"")
