"""The way to Entra: where the configuration says and nowhere else, by azure-identity and no other SDK, and silent about what it carries."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from agent.errors import Rejected, Unavailable
from tests.servers.azure import Azure, azure, failure
from tests.servers.entra import CLIENT, TENANT, page, refuse
from tests.servers.site import Site
from tests.servers.tls import certificate

OTHER = "00000000-1111-2222-3333-444444444444"
VAULT = "https://vault.azure.net"


@pytest.fixture
async def cloud() -> AsyncIterator[Azure]:
    async with azure() as one:
        yield one


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_only_its_host_is_named(cloud: Azure, status: int) -> None:
    async with Site() as bystander:
        cloud.entra.instead = page(status, "", Location=f"http://user:password@127.0.0.1:{bystander.port}/path?client_assertion=x")
        error = await failure(cloud)
        assert bystander.requests == 0
    assert isinstance(error, Rejected)
    assert "redirects to 127.0.0.1," in error.message
    assert not any(part in str(error) for part in ("user", "password", "path", "client_assertion"))
    assert cloud.entra.requests == 1


async def test_a_silent_entra_is_unavailable_after_the_patience() -> None:
    async with azure(patience=0.3) as cloud:
        cloud.entra.hanging = True
        error = await failure(cloud)
        assert isinstance(error, Unavailable)
        assert "did not answer within 0.3 s" in error.message
        cloud.entra.hanging = False
        await cloud.provider().exchange(cloud.token())


async def test_nobody_at_the_other_end_is_unavailable(cloud: Azure) -> None:
    async with Site() as gone:
        url = gone.url
    assert isinstance(await failure(cloud, endpoint=url), Unavailable)


async def test_a_cancelled_exchange_is_cancelled_and_the_next_one_works(cloud: Azure) -> None:
    cloud.entra.hanging = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await cloud.provider().exchange(cloud.token())
    cloud.entra.hanging = False
    await cloud.provider().exchange(cloud.token())
    assert not (await cloud.toolbox.http()).closed


async def test_tls_is_verified_against_the_configured_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, pem = certificate(tmp_path, "127.0.0.1")
    _, stranger = certificate(tmp_path, "stranger.example")
    async with azure(tls=context) as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", stranger)
        await cloud.provider(caFile=pem).exchange(cloud.token())
        await cloud.provider(authority=cloud.entra.url, endpoint=None, scopes=[f"{VAULT}/.default"], caFile=pem).exchange(cloud.token())
        for settings in ({}, {"caFile": str(tmp_path / "stranger.example.key")}, {"caFile": "/nowhere"}):
            error = await failure(cloud, **settings)
            assert isinstance(error, Rejected)
            assert "provider.caFile" in str(error)
        assert cloud.entra.requests == 2


async def test_a_certificate_for_another_name_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    context, pem = certificate(tmp_path, "login.example")
    async with azure(tls=context) as cloud:
        error = await failure(cloud, caFile=pem)
        assert isinstance(error, Rejected)
        assert "certificate that is not trusted" in error.message
        assert cloud.entra.requests == 0


async def test_the_proxy_is_the_configured_one_and_its_password_is_not_told(cloud: Azure, tmp_path: Path) -> None:
    class Proxy(Site):
        methods: tuple[str, ...] = ()

        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            self.methods = (*self.methods, request.method)
            return web.Response(status=403)

    async with Proxy() as proxy:
        error = await failure(cloud, endpoint="https://login.example", proxy=f"http://user:canary-p@127.0.0.1:{proxy.port}")
        assert proxy.methods == ("CONNECT",)
    assert isinstance(error, Rejected)
    assert "the proxy refused login.example" in error.message
    assert "canary-p" not in str(error)


async def test_nothing_is_taken_from_the_environment(cloud: Azure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with Site() as trap:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "AZURE_AUTHORITY_HOST", "MSI_ENDPOINT"):
            monkeypatch.setenv(name, trap.url)
        for name in ("IDENTITY_ENDPOINT", "AZURE_KUBERNETES_TOKEN_PROXY", "AZURE_POD_IDENTITY_AUTHORITY_HOST"):
            monkeypatch.setenv(name, trap.url)
        for name, value in {
            "NO_PROXY": "",
            "no_proxy": "",
            "AZURE_TENANT_ID": OTHER,
            "AZURE_CLIENT_ID": OTHER,
            "AZURE_CLIENT_SECRET": "trapped",
            "AZURE_FEDERATED_TOKEN_FILE": "/nowhere",
            "AZURE_REGIONAL_AUTHORITY_NAME": "westeurope",
            "AZURE_TOKEN_CREDENTIALS": "dev",
            "AZURE_IDENTITY_DISABLE_MULTITENANTAUTH": "true",
            "AZURE_CLOUD": "AzureChinaCloud",
            "AZURE_LOG_LEVEL": "DEBUG",
            "AZURE_TRACING_ENABLED": "true",
            "AZURE_SDK_TRACING_IMPLEMENTATION": "opencensus",
            "REQUESTS_CA_BUNDLE": "/nowhere",
            "MSAL_FORCE_REGION": "westeurope",
        }.items():
            monkeypatch.setenv(name, value)
        await cloud.provider().exchange(cloud.token())
        assert cloud.entra.parameters[-1]["client_id"] == CLIENT
        cloud.entra.instead = page(503, "")
        assert isinstance(await failure(cloud), Unavailable)
        assert trap.requests == 0


async def test_no_log_holds_a_token_however_loud(cloud: Azure, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = cloud.token()
    credential = await cloud.provider().exchange(token)
    cloud.entra.instead = refuse(401, 700213, token.value.reveal())
    await failure(cloud, token)
    for secret in (*token.value.reveal().split("."), credential.document()["access_token"].reveal()):
        assert secret not in caplog.text


PROGRAM = """
import asyncio, sys
CLOUDS = ("azure", "msal", "botocore", "aiobotocore", "google.auth", "alibabacloud_credentials", "requests")
from agent.providers import build
from agent.settings import convert
from agent.providers.azure.settings import AzureSettings
from agent.http.session import Session
from agent.toolbox import Toolbox
from agent.clock import WallClock
from agent.errors import Unavailable
from tests.fakes import a_token
async def main():
    async with Session() as session:
        toolbox = Toolbox(clock=WallClock(), random=None, counters=None, http=session.get)
        chosen = {"type": "azure", "tenantId": sys.argv[1], "clientId": sys.argv[2], "endpoint": "http://127.0.0.1:9"}
        settings = convert(chosen, AzureSettings)
        provider = build(settings, "one", toolbox)
        print(*(name for name in CLOUDS if name in sys.modules), sep=",")
        try:
            await provider.exchange(a_token())
        except Unavailable:
            print(*(name for name in CLOUDS if name in sys.modules), sep=",")
asyncio.run(main())
"""


def test_the_sdk_is_loaded_at_the_first_exchange_and_no_other_clouds_ever() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, TENANT, CLIENT], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert before == ""
    assert after == "azure,msal,requests"
