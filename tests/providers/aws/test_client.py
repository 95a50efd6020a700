"""One client for good, asked nowhere but where the configuration says, and silent about what it carries."""

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from agent.errors import Rejected, Unavailable
from agent.providers.aws.client import AwsClients
from agent.providers.aws.regions import DATA
from agent.providers.aws.transport import Endpoint
from agent.settings import Url
from tests.servers.cloud import Cloud, cloud
from tests.servers.site import Site
from tests.servers.sts import page
from tests.servers.tls import certificate


@pytest.fixture
async def aws() -> AsyncIterator[Cloud]:
    async with cloud() as one:
        yield one


def endpoint(one: Cloud, **settings: Any) -> Endpoint:
    return Endpoint(url=Url(one.sts.url), region="eu-west-1", **settings)


async def test_fifty_exchanges_share_one_client_and_one_connection_pool(aws: Cloud) -> None:
    client = await aws.aws.client(endpoint(aws))
    for number in range(50):
        await aws.provider(f"identity-{number % 3}").exchange(aws.issuer.token())
    assert await aws.aws.client(endpoint(aws)) is client
    session = type(client)
    gc.collect()
    assert len([one for one in gc.get_objects() if type(one) is session]) == 1
    assert aws.sts.requests == 50


async def test_a_herd_at_the_start_makes_one_client(aws: Cloud) -> None:
    found = await asyncio.gather(*(aws.aws.client(endpoint(aws)) for _ in range(20)))
    assert len({id(client) for client in found}) == 1


async def test_each_endpoint_has_its_own_client(aws: Cloud) -> None:
    here = await aws.aws.client(endpoint(aws))
    there = await aws.aws.client(Endpoint(url=Url(aws.sts.url), region="us-east-1"))
    assert here is not there


async def test_the_shared_session_outlives_the_clients(aws: Cloud) -> None:
    await aws.provider().exchange(aws.issuer.token())
    await aws.aws.close()
    assert not (await aws.toolbox.http()).closed
    await aws.provider().exchange(aws.issuer.token())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_only_its_host_is_named(aws: Cloud, status: int) -> None:
    async with Site() as bystander:
        aws.sts.instead = page(status, "", Location=f"http://user:password@127.0.0.1:{bystander.port}/path?WebIdentityToken=x")
        with pytest.raises(Rejected) as caught:
            await aws.provider().exchange(aws.issuer.token())
        assert bystander.requests == 0
    assert "redirects to 127.0.0.1," in caught.value.message
    assert not any(part in str(caught.value) for part in ("user", "password", "path", "WebIdentityToken"))
    assert aws.sts.requests == 1


async def test_nothing_is_taken_from_the_environment(aws: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with Site() as trap:
        shared = tmp_path / "config"
        shared.write_text(
            f"[default]\nregion = us-west-2\nendpoint_url = {trap.url}\nca_bundle = /nowhere\nparameter_validation = true\n"
            f"[profile trapped]\nregion = us-west-2\nendpoint_url = {trap.url}\nrole_arn = arn:aws:iam::1:role/x\n"
        )
        home = tmp_path / "home" / ".aws"
        home.mkdir(parents=True)
        for name in ("config", "credentials"):
            (home / name).write_text("not a configuration file")
        monkeypatch.setenv("HOME", str(home.parent))
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, trap.url)
        for name, value in {
            "NO_PROXY": "",
            "no_proxy": "",
            "AWS_PROFILE": "trapped",
            "AWS_DEFAULT_PROFILE": "trapped",
            "AWS_CONFIG_FILE": str(shared),
            "AWS_SHARED_CREDENTIALS_FILE": str(shared),
            "AWS_ACCESS_KEY_ID": "AKIATRAPPED",
            "AWS_SECRET_ACCESS_KEY": "trapped",
            "AWS_REGION": "us-west-2",
            "AWS_DEFAULT_REGION": "us-west-2",
            "AWS_CA_BUNDLE": "/nowhere",
            "REQUESTS_CA_BUNDLE": "/nowhere",
            "AWS_DATA_PATH": str(tmp_path),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": trap.url,
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": trap.url,
            "AWS_DEFAULTS_MODE": "auto",
            "AWS_RETRY_MODE": "adaptive",
            "AWS_MAX_ATTEMPTS": "5",
            "AWS_STS_REGIONAL_ENDPOINTS": "legacy",
            "AWS_USE_FIPS_ENDPOINT": "true",
            "AWS_USE_DUALSTACK_ENDPOINT": "true",
            "AWS_CSM_ENABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        await aws.provider().exchange(aws.issuer.token())
        aws.sts.instead = page(503, "")
        with pytest.raises(Unavailable):
            await aws.provider().exchange(aws.issuer.token())
        assert trap.requests == 0
    assert aws.sts.requests == 2
    client = await aws.aws.client(endpoint(aws))
    assert (client.meta.region_name, client.meta.endpoint_url) == ("eu-west-1", aws.sts.url)
    assert aws.aws._session.get_component("data_loader").search_paths == [str(DATA)]


async def test_without_an_endpoint_the_client_asks_the_region(aws: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")
    provider = aws.provider(endpoint=None)
    assert provider.host == "sts.eu-west-1.amazonaws.com"
    sts = Endpoint(url=Url("https://sts.eu-west-1.amazonaws.com"), region="eu-west-1")
    assert (await aws.aws.client(sts)).meta.endpoint_url == "https://sts.eu-west-1.amazonaws.com"


async def test_a_configured_proxy_is_used(aws: Cloud) -> None:
    class Proxy(Site):
        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            assert request.raw_path.startswith("http://")
            return web.Response(status=502)

    async with Proxy() as proxy:
        with pytest.raises(Unavailable):
            await aws.provider(proxy=proxy.url).exchange(aws.issuer.token())
        assert proxy.requests == 1
    assert aws.sts.requests == 0


async def test_a_proxy_that_is_gone_or_refuses_is_told_apart(aws: Cloud) -> None:
    class Refusing(Site):
        status = 407

        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=self.status)

    async with Refusing() as proxy:
        settings = {"endpoint": "https://sts.example", "proxy": f"http://user:swordfish@127.0.0.1:{proxy.port}"}
        with pytest.raises(Rejected) as refused:
            await aws.provider(**settings).exchange(aws.issuer.token())
        proxy.status = 503
        with pytest.raises(Unavailable) as busy:
            await aws.provider(**settings).exchange(aws.issuer.token())
    with pytest.raises(Unavailable) as gone:
        await aws.provider(**settings).exchange(aws.issuer.token())
    for caught in (refused, busy, gone):
        assert "provider.proxy" in caught.value.remedy
        assert "swordfish" not in str(caught.value)


async def test_a_private_authority_is_trusted_where_configured_and_read_again_when_it_changes(tmp_path: Path) -> None:
    tls, pem = certificate(tmp_path, "127.0.0.1")
    _, other = certificate(tmp_path, "sts.example")
    async with cloud(tls=tls) as aws:
        authorities = tmp_path / "ca.crt"
        authorities.write_text(Path(other).read_text())
        provider = aws.provider(caFile=str(authorities))
        with pytest.raises(Rejected, match="not trusted") as caught:
            await provider.exchange(aws.issuer.token())
        assert "provider.caFile" in caught.value.remedy
        (tmp_path / "new").write_text(Path(pem).read_text())
        (tmp_path / "new").replace(authorities)
        await provider.exchange(aws.issuer.token())
        with pytest.raises(Rejected, match="not trusted"):
            await aws.provider().exchange(aws.issuer.token())
        assert aws.sts.requests == 1


async def test_a_certificate_for_another_name_is_rejected_before_the_token_leaves(tmp_path: Path) -> None:
    tls, pem = certificate(tmp_path, "sts.example")
    async with cloud(tls=tls) as aws:
        with pytest.raises(Rejected, match=r"IP address mismatch|Hostname mismatch"):
            await aws.provider(caFile=pem).exchange(aws.issuer.token())
        assert aws.sts.requests == 0


@pytest.mark.parametrize("content", [None, "not PEM"])
async def test_authorities_that_cannot_be_read_are_rejected_by_name(aws: Cloud, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.crt"
    if content:
        file.write_text(content)
    with pytest.raises(Rejected, match=str(file)):
        await aws.provider(caFile=str(file)).exchange(aws.issuer.token())


async def test_a_host_that_is_not_there_is_unavailable(aws: Cloud, unused_tcp_port: int) -> None:
    with pytest.raises(Unavailable, match="could not be reached"):
        await aws.provider(endpoint=f"http://127.0.0.1:{unused_tcp_port}").exchange(aws.issuer.token())


async def test_a_host_without_an_address_is_unavailable(aws: Cloud) -> None:
    class Nowhere(aiohttp.abc.AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[Any]:
            raise OSError("no such name")

        async def close(self) -> None:
            pass

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Nowhere())) as http:

        async def session() -> aiohttp.ClientSession:
            return http

        async with AwsClients(session) as clients:
            with pytest.raises(Unavailable, match=r"s3: sts.example has no address"):
                await clients.call(Endpoint(url=Url("https://sts.example"), region="eu-west-1"), "get_caller_identity", {}, whose="s3")


async def test_a_connection_that_breaks_off_is_unavailable(aws: Cloud) -> None:
    def hang_up(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    aws.sts.instead = hang_up
    with pytest.raises(Unavailable, match="broke off the exchange"):
        await aws.provider().exchange(aws.issuer.token())


async def test_nothing_secret_is_logged_even_for_debugging(aws: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("botocore", "aiobotocore"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    caplog.set_level(logging.DEBUG)
    token = aws.issuer.token()
    credential = await aws.provider().exchange(token)
    aws.sts.instead = page(200, token.value.reveal())
    with pytest.raises(Unavailable):
        await aws.provider().exchange(token)
    document = credential.document()
    secrets = [token.value.reveal(), document["SecretAccessKey"].reveal(), document["Token"].reveal()]
    assert not any(secret in record.getMessage() + str(record.exc_info) for record in caplog.records for secret in secrets)


def test_what_does_not_exchange_loads_no_sdk() -> None:
    program = """
import asyncio, sys
from random import Random
from agent.clock import WallClock
from agent.providers.aws.provider import AwsProvider
from agent.providers.aws.settings import AwsSettings
from agent.settings import convert
from agent.counters import Counters
from agent.toolbox import Resources, Toolbox

async def main():
    async with Resources(None) as resources:
        toolbox = Toolbox(clock=WallClock(), random=Random(), counters=Counters(), http=None, resources=resources)
        settings = {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/r", "region": "eu-west-1", "exchange": False}
        await AwsProvider(convert(settings, AwsSettings), "demo", toolbox).exchange(None)

asyncio.run(main())
print([name for name in sys.modules if name.partition(".")[0] in {"botocore", "aiobotocore", "aiohttp", "jwt", "cryptography"}])
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
