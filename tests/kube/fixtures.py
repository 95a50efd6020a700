"""Fixtures for tests against an API server: each runs over the real one and over the stand-in, so that the stand-in is proven."""

import asyncio
import os

import pytest

from tests.kube import apiserver
from tests.kube.cluster import Cluster, connector
from tests.kube.fake import FakeApiServer
from tests.kube.proxy import before
from tests.servers.tls import certificate


@pytest.fixture(scope="session")
def real_api_server(tmp_path_factory):
    if apiserver.assets() is None:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with apiserver.running(shared / "kube-apiserver") as found:
        yield found


@pytest.fixture(params=["real", "fake"])
async def cluster(request, tmp_path):
    """Furnished, and the agent allowed to ask for tokens of `app`."""
    context, pem = certificate(tmp_path, "127.0.0.1")
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    async with connector() as session:
        if request.param == "real":
            port, store, ca = request.getfixturevalue("real_api_server")
            async with before(f"https://127.0.0.1:{port}", str(ca), context) as proxy:
                genuine = Cluster(f"https://127.0.0.1:{port}", str(ca), proxy, folder, session)
                genuine.store = f"http://127.0.0.1:{store}"
                yield await _furnished(genuine, pem)
                await asyncio.sleep(0.05)  # for TLS to say goodbye
        else:
            async with FakeApiServer(context) as server, before(server.url, pem, context) as proxy:
                stand_in = Cluster(server.url, pem, proxy, folder, session)
                stand_in.fake = server
                yield await _furnished(stand_in, pem)
                await asyncio.sleep(0.05)


async def _furnished(cluster, pem):
    await cluster.furnish()
    with open(pem) as file:  # the agent meets the proxy's certificate
        cluster.ca = file.read()
    (cluster.folder / "ca.crt").write_text(cluster.ca)
    await cluster.allow("token.yaml", "app")
    return cluster
