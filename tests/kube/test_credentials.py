import asyncio
import base64
import os
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from agent.clock import WallClock
from agent.errors import NotReady, Rejected, Unavailable
from agent.kube.clients import KubeClients
from agent.kube.credential_files import Credentials
from agent.kube.credentials import from_kubeconfig, in_cluster
from tests.fakes import FakeClock
from tests.kube.apiserver import ADMIN
from tests.kube.proxy import Fault
from tests.servers.tls import certificate

CANARY = "canary-7f3a-in-a-kubeconfig"


@pytest.fixture
async def version(cluster):
    """Asks for something small with this kubeconfig."""

    async def ask(path):
        async with cluster.clients() as kube:
            return await kube.client(path).send("GET", f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts")

    return ask


async def test_a_token_in_the_file_serves(cluster, version):
    assert (await version(cluster.kubeconfig()))["kind"] == "ServiceAccountList"


async def test_a_token_file_is_read_each_time(cluster):
    path = cluster.folder.parent / "own"
    config = cluster.kubeconfig(user={"tokenFile": "own"})
    token = await cluster.token("wi-agent", namespace=cluster.home)
    async with cluster.clients() as kube:
        cluster.proxy.always = Fault(status=200, body="{}")
        for text in ("one\n", token):
            path.write_text(text)
            await kube.client(config).send("GET", "/")
    assert cluster.proxy.tokens == ["Bearer one", f"Bearer {token}"]


async def test_a_ca_in_the_file_serves_and_a_wrong_one_does_not(cluster, version):
    good = {"certificate-authority-data": base64.b64encode(cluster.ca.encode()).decode()}
    await version(cluster.kubeconfig(**good))
    with pytest.raises(Rejected, match="not base64 of PEM"):
        await version(cluster.kubeconfig(**{"certificate-authority-data": "?"}))


async def test_a_name_for_the_certificate_is_checked_instead_of_the_address(cluster, version):
    with pytest.raises(Rejected, match="not trusted"):
        await version(cluster.kubeconfig(**{"tls-server-name": "another.example"}))


async def test_no_proxy_is_taken_from_the_environment(cluster, version, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    await version(cluster.kubeconfig())


async def test_a_ca_needs_no_temporary_directory(cluster, version, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    await version(cluster.kubeconfig())


def written(folder, text):
    path = folder / "kubeconfig"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"users: [{{name: x, user: {{token: {CANARY}", "is not a kubeconfig"),
        (f"- {CANARY}", "is not a kubeconfig"),
        (f"users: [{{name: x, user: {{token: {CANARY}}}}}]", "has no context"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: y}}]", "has no cluster"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: y, user: z}}]\nclusters: [{name: y, cluster: {}}]", "has no user"),
    ],
)
def test_a_file_that_is_wrong_is_told_without_its_words(tmp_path, text, said):
    with pytest.raises(Rejected, match=said) as caught:
        from_kubeconfig(written(tmp_path, text))
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def config(user="{}", server="https://127.0.0.1:1"):
    context = "current-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]"
    return f"{context}\nclusters: [{{name: x, cluster: {{server: '{server}'}}}}]\nusers: [{{name: x, user: {user}}}]"


@pytest.mark.parametrize("way", ["exec", "auth-provider", "username"])
def test_a_way_to_sign_in_that_the_agent_has_not_is_refused_by_name(tmp_path, way):
    with pytest.raises(Rejected, match=f"`{way}`"):
        from_kubeconfig(written(tmp_path, config(f"{{{way}: {{password: {CANARY}}}}}")))


def test_a_cluster_without_verification_is_refused_with_a_remedy(tmp_path):
    text = config(f"{{token: {CANARY}}}").replace("cluster: {server", "cluster: {insecure-skip-tls-verify: true, server")
    with pytest.raises(Rejected, match="insecure-skip-tls-verify") as caught:
        from_kubeconfig(written(tmp_path, text))
    assert "certificate-authority" in caught.value.remedy


def test_an_encrypted_client_key_is_refused_before_openssl_asks(tmp_path):
    key = base64.b64encode(b"-----BEGIN ENCRYPTED PRIVATE KEY-----").decode()
    with pytest.raises(Rejected, match="client-key is encrypted"):
        from_kubeconfig(written(tmp_path, config(f"{{client-key-data: {key}}}")))


@pytest.mark.parametrize("value", ["0x" + "f" * 5000, "2026-13-45", "!!timestamp 0", "{[1]: 2}"])
def test_a_value_that_yaml_cannot_construct_is_refused(tmp_path, value):
    with pytest.raises(Rejected):
        from_kubeconfig(written(tmp_path, f"x: {value}"))


async def test_files_are_read_again_only_after_a_change(cluster):
    path = Path(cluster.kubeconfig())
    reads = []

    def load(read):
        def counted(file, remedy):
            reads.append(file)
            return read(file, remedy)

        return from_kubeconfig(path, counted)

    credentials = Credentials(load, FakeClock())
    for file in (path, cluster.folder / "ca.crt"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    await asyncio.gather(*(credentials.access() for _ in range(50)))
    await credentials.access()
    assert (len(reads), credentials.version) == (2, 1)
    path.write_text(path.read_text().replace(ADMIN, "another"))
    assert (await credentials.access()).token.reveal() == "another"
    assert credentials.version == 2


async def test_each_caller_gets_an_error_of_its_own(tmp_path):
    credentials = Credentials(lambda read: from_kubeconfig(tmp_path / "none", read), FakeClock())
    found = await asyncio.gather(*(credentials.access() for _ in range(3)), return_exceptions=True)
    assert {type(error) for error in found} == {NotReady}
    assert len({id(error) for error in found}) == 3
    assert all(error.remedy == "check source.kubeconfig" for error in found)


async def test_a_cancelled_reader_leaves_the_others_their_files(cluster):
    credentials = Credentials(lambda read: from_kubeconfig(Path(cluster.kubeconfig()), read), FakeClock())
    first, second = asyncio.ensure_future(credentials.access()), asyncio.ensure_future(credentials.access())
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).token.reveal() == ADMIN


@pytest.mark.parametrize("token", ["a b", "a\\nb", "ä"])
def test_a_token_that_is_no_header_is_refused_without_being_quoted(tmp_path, token):
    with pytest.raises(Rejected, match="cannot be sent") as caught:
        from_kubeconfig(written(tmp_path, config(f'{{token: "{CANARY}{token}"}}')))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("server", ["http://api.example", "", "ftp://x", "http://10.0.0.1:6443"])
def test_a_server_that_would_be_asked_in_the_clear_or_is_none_is_refused(tmp_path, server):
    with pytest.raises(Rejected, match="https URL"):
        from_kubeconfig(written(tmp_path, config(server=server)))


def test_http_to_this_machine_is_allowed(tmp_path):
    assert from_kubeconfig(written(tmp_path, config(server="http://127.0.0.1:8001/"))).server == "http://127.0.0.1:8001"


def test_a_file_that_is_not_there_is_awaited(tmp_path):
    with pytest.raises(NotReady, match="there is no"):
        from_kubeconfig(tmp_path / "none")


def test_files_named_in_it_lie_beside_it(tmp_path):
    (tmp_path / "token").write_text("abc\n")
    (tmp_path / "ca").write_text("PEM")
    text = config("{tokenFile: token}").replace("cluster: {server", "cluster: {certificate-authority: ca, server")
    access = from_kubeconfig(written(tmp_path, text))
    assert access.token.reveal() == "abc"
    assert access.ca == "PEM"


def test_a_cluster_over_ipv6_is_reached(tmp_path):
    (tmp_path / "token").write_text("abc\n")
    (tmp_path / "ca.crt").write_text("PEM")
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert access.server == "https://[fd00::1]:443"


def test_what_is_known_of_the_way_in_shows_no_secret(tmp_path):
    key = base64.b64encode(CANARY.encode()).decode()
    access = from_kubeconfig(written(tmp_path, config(f"{{token: {CANARY}, client-key-data: {key}}}")))
    assert CANARY not in repr(access)


@pytest.mark.parametrize("known", [True, False])
async def test_a_client_certificate_is_shown_to_who_asks_for_one(tmp_path, known, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))  # a root that cannot be written has no such directory
    context, pem = certificate(tmp_path, "127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(pem)
    shown = []

    async def answer(request):
        shown.append(request.transport.get_extra_info("peercert")["subject"])
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/version", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    url = f"https://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    key = base64.b64encode((tmp_path / "127.0.0.1.key").read_bytes()).decode()
    user = f"{{client-certificate: 127.0.0.1.pem, client-key-data: {key}}}" if known else f"{{token: {CANARY}}}"
    path = written(tmp_path, config(user, url).replace("cluster: {server", "cluster: {certificate-authority: 127.0.0.1.pem, server"))
    async with KubeClients(WallClock(), {}) as kube:
        if known:
            await kube.client(str(path)).send("GET", "/version")
            assert shown == [((("commonName", "127.0.0.1"),),)]
        else:
            with pytest.raises(Unavailable) as caught:
                await kube.client(str(path)).send("GET", "/version")
            assert CANARY not in str(caught.value)
    await runner.cleanup()
    await asyncio.sleep(0.05)  # for TLS to say goodbye
