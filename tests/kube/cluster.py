"""A cluster as a test wants it: an API server, real or not, with an agent's ServiceAccount that may do what docs/rbac says."""

import ssl
from pathlib import Path
from random import Random
from uuid import uuid4

import aiohttp
import jwt
import yaml

from agent.clock import WallClock
from agent.counters import Counters
from agent.kube.clients import KubeClients
from agent.toolbox import Toolbox
from tests.kube.apiserver import ADMIN

RBAC = Path(__file__).parents[2] / "docs" / "rbac"
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "Event": "/api/v1/namespaces/{namespace}/events",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


class Cluster:
    """`proxy` stands between the agent and the server; the admin goes straight to it."""

    def __init__(self, url, ca, proxy, folder, session):
        self.url = url
        self.ca = Path(ca).read_text()
        self.proxy = proxy
        self.folder = folder
        """The agent's own service account, as kubelet would project it."""
        self.namespace = f"demo-{uuid4().hex[:8]}"
        """Of the workloads, this test's own."""
        self.home = f"{self.namespace}-agent"
        """Of the agent."""
        self.fake = None
        """The stand-in, if it is one."""
        self.store = ""
        """The real one's etcd."""
        self._session = session
        self._trusted = ssl.create_default_context(cafile=ca)

    async def admin(self, method, path, body=None, *, media="application/json"):
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": media}
        async with self._session.request(method, self.url + path, json=body, headers=headers, ssl=self._trusted) as response:
            found = await response.json(content_type=None)
            assert response.status < 400, found
            return found

    async def create(self, kind, name, *, namespace=None, **rest):
        namespace = namespace or self.namespace
        version = "rbac.authorization.k8s.io/v1" if "Role" in kind else "v1"
        metadata = {"name": name, **rest.pop("metadata", {})}
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}
        return await self.admin("POST", PLACES[kind].format(namespace=namespace), body)

    async def delete(self, kind, name, *, namespace=None):
        body = {"gracePeriodSeconds": 0, "apiVersion": "v1", "kind": "DeleteOptions"}
        await self.admin("DELETE", f"{PLACES[kind].format(namespace=namespace or self.namespace)}/{name}", body)

    async def annotate(self, name, annotations, *, namespace=None):
        """A value of None removes."""
        path = f"{PLACES['ServiceAccount'].format(namespace=namespace or self.namespace)}/{name}"
        await self.admin("PATCH", path, {"metadata": {"annotations": annotations}}, media="application/merge-patch+json")

    async def account(self, name, *, namespace=None, annotations=None):
        metadata = {"annotations": annotations} if annotations else {}
        return await self.create("ServiceAccount", name, namespace=namespace, metadata=metadata)

    async def pod(self, name, account):
        spec = {
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "example.invalid/none"}],
        }
        return await self.create("Pod", name, spec=spec)

    async def allow(self, manifest, name, *, namespace=None, verbs=()):
        """Apply docs/rbac/MANIFEST for the ServiceAccounts of this name, with other names; with these verbs only, if any are given."""
        namespace = namespace or self.namespace
        for found in yaml.safe_load_all((RBAC / manifest).read_text()):
            found["metadata"]["namespace"] = namespace
            found["metadata"]["name"] += f"-{name}"
            for rule in found.get("rules", ()):
                rule["verbs"] = list(verbs) or rule["verbs"]
                rule["resourceNames"] = [name if one == "app" else one for one in rule.get("resourceNames", ())]
            for subject in found.get("subjects", ()):
                subject["namespace"] = self.home
            if "roleRef" in found:
                found["roleRef"]["name"] += f"-{name}"
            await self.admin("POST", PLACES[found["kind"]].format(namespace=namespace), found)

    async def token(self, name, *, namespace=None, seconds=3600):
        """One of this ServiceAccount, by the admin."""
        path = f"{PLACES['ServiceAccount'].format(namespace=namespace or self.namespace)}/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}}
        return (await self.admin("POST", path, body))["status"]["token"]

    def own_token(self, text):
        """What the agent shows to the API server from now on."""
        (self.folder / "token.new").write_text(text)
        (self.folder / "token.new").rename(self.folder / "token")

    async def forget(self, version):
        """The server no longer knows what was before this resourceVersion."""
        if self.fake:
            self.fake.forgotten = int(version)
        else:
            async with self._session.post(f"{self.store}/v3/kv/compaction", json={"revision": version, "physical": True}) as response:
                assert response.status == 200, await response.text()

    def kubeconfig(self, user=None, **cluster):
        """A file; its user is the admin where nobody else is named."""
        name = {"name": "x"}
        document = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
        document["contexts"] = [{**name, "context": {"cluster": "x", "user": "x"}}]
        server = {"server": f"https://127.0.0.1:{self.proxy.port}", "certificate-authority": "serviceaccount/ca.crt"}
        document["clusters"] = [{**name, "cluster": {**server, **cluster}}]
        document["users"] = [{**name, "user": user or {"token": ADMIN}}]
        path = self.folder.parent / f"kubeconfig-{uuid4().hex}"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    async def furnish(self):
        """Namespaces, the agent's own ServiceAccount and its token, and a workload's: `app`."""
        for namespace in (self.namespace, self.home):
            await self.create("Namespace", namespace)
        await self.account("wi-agent", namespace=self.home)
        await self.account("app")
        self.own_token(await self.token("wi-agent", namespace=self.home))
        (self.folder / "ca.crt").write_text(self.ca)

    @property
    def environ(self):
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.proxy.port)}

    @property
    def agent(self):
        """As RBAC knows it."""
        return f"system:serviceaccount:{self.home}:wi-agent"

    def clients(self, clock=None, timeout=10.0, **environ):
        return KubeClients(clock or WallClock(), {**self.environ, **environ}, service_account=self.folder, timeout=timeout)

    def toolbox(self, kube, clock=None):
        async def no_http():
            raise AssertionError("nothing else is asked")

        return Toolbox(clock=clock or WallClock(), random=Random(1), counters=Counters(), http=no_http, kube=kube)

    async def verified(self, token, audience):
        """The claims of a token, by the keys that the server publishes."""
        keys = jwt.PyJWKSet.from_dict(await self.admin("GET", "/openid/v1/jwks"))
        key = keys[jwt.get_unverified_header(token)["kid"]]
        return jwt.decode(token, key, algorithms=["RS256"], audience=audience, issuer="https://kubernetes.default.svc")


def connector():
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
