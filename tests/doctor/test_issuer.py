"""The issuer's link, beyond what the golden files show: whatever answers there is told apart from an issuer."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from tests.doctor.scene import Scene
from tests.servers.site import Site
from tests.servers.tls import certificate


async def look(stage: Scene) -> tuple[str, str]:
    """The verdict and the whole line of the issuer's link, where no agent runs."""
    stage.configure()
    _, text = await stage.doctor()
    (line,) = [line for line in text.splitlines() if line.startswith("  issuer ")]
    return line.split()[1], line


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>sign in</html>", "does not answer with a JSON object"),
        (b"[]", "does not answer with a JSON object"),
        (b"[" * 100_000, "does not answer with a JSON object"),
        (b"{" + b" " * (2 << 20), "does not answer with a JSON object"),
        (b"{}", "has the issuer None"),
        (b'{"issuer": "ISSUER"}', "names no jwks_uri"),
        (b'{"issuer": "ISSUER", "jwks_uri": "file:///etc/passwd"}', "names no jwks_uri"),
        (b'{"issuer": "ISSUER", "jwks_uri": "ISSUER/none"}', "answers 404"),
        (b'{"issuer": "ISSUER", "jwks_uri": "ISSUER/strange"}', "has the keys none, and not one"),
    ],
)
async def test_an_invalid_document_is_reported(stage: Scene, body: bytes, said: str):
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/strange":
            return web.json_response({"keys": 3})
        if request.path == "/none":
            return web.Response(status=404)
        return web.Response(body=body.replace(b"ISSUER", stage.cloud.issuer.url.encode()))

    stage.cloud.issuer.answer = answer
    verdict, line = await look(stage)
    assert verdict == "broken"
    assert said in line


@pytest.mark.parametrize("how", ["port", "scheme"])
async def test_keys_on_another_host_are_not_fetched(stage: Scene, how: str):
    async with Site() as other:
        other.answer = never
        place = other.url if how == "port" else stage.cloud.issuer.url.replace("http://", "https://")
        document = {"issuer": stage.cloud.issuer.url, "jwks_uri": f"{place}/internal/admin?delete=1"}

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            assert request.path == "/.well-known/openid-configuration"
            return web.json_response(document)

        stage.cloud.issuer.answer = answer
        verdict, line = await look(stage)
    assert verdict == "warning"
    assert "names keys on another host, which the doctor does not ask: '" in line
    assert "/internal/admin?delete=1'" in line


async def never(request: web.BaseRequest) -> web.StreamResponse:
    raise AssertionError(f"the doctor asked for {request.path}")


@pytest.mark.parametrize("iss", ["kubernetes/serviceaccount", "https://", "ftp://issuer.example", "http://[::1"])
async def test_an_issuer_that_is_not_a_url_is_reported(stage: Scene, iss: str):
    stage.present(iss=iss)
    verdict, line = await look(stage)
    assert verdict == "broken"
    assert "is not an http or https URL" in line


async def test_a_self_signed_certificate_is_reported(stage: Scene, tmp_path: Path):
    context, _ = certificate(tmp_path, "127.0.0.1")
    async with Site(context) as site:
        stage.present(iss=site.url)
        verdict, line = await look(stage)
    assert verdict == "broken"
    assert "cannot verify the certificate of" in line


async def test_an_issuer_that_does_not_answer_is_a_timeout(stage: Scene, monkeypatch: pytest.MonkeyPatch):
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("agent.doctor.issuer.REQUEST_TIMEOUT_SECONDS", 0.2)
    stage.cloud.sts.patience = 0.2
    async with Site() as site:
        site.answer = answer
        stage.present(iss=site.url)
        verdict, line = await look(stage)
    assert verdict == "broken"
    assert "did not answer within" in line
