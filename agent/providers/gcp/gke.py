"""The GKE cluster that the agent runs in, as its metadata server names it.

The agent asks for it before the first token, not at start: right after a pod's start that server does not answer yet.

https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#metadata_server
"""

import re
from dataclasses import dataclass

from agent.errors import NotReady, RefreshError, Rejected
from agent.http.client import HttpClient

SERVER = "http://169.254.169.254"
"""By address, because the name needs a resolver; never over a proxy, because it is on the node."""
FLAVOR = {"Metadata-Flavor": "Google"}
"""Required in each request, and sent in each answer."""
PATHS = ("project/project-id", "instance/attributes/cluster-location", "instance/attributes/cluster-name")
VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The three names of a cluster."""

    project: str
    location: str
    name: str

    @property
    def pool(self) -> str:
        """The workload identity pool of all clusters of the project; also the audience of a token for it."""
        return f"{self.project}.svc.id.goog"

    @property
    def audience(self) -> str:
        """The cluster as the security token service names it."""
        path = f"projects/{self.project}/locations/{self.location}/clusters/{self.name}"
        return f"identitynamespace:{self.pool}:https://container.googleapis.com/v1/{path}"


async def read(client: HttpClient, server: str, whose: str) -> Cluster:
    """Ask for all three names. Raise NotReady, Unavailable or Rejected."""
    return Cluster(*[await _value(client, server, path, whose) for path in PATHS])


async def _value(client: HttpClient, server: str, path: str, whose: str) -> str:
    answer = await client.send("GET", f"{server}/computeMetadata/v1/{path}", headers=FLAVOR)
    failure: RefreshError
    if answer.status >= 500 or answer.status in {408, 429}:
        failure = NotReady(f"{whose}: GKE's metadata server answered {answer.status}", remedy="wait a few seconds after the pod's start")
    elif answer.status != 200 or answer.headers.get("Metadata-Flavor") != "Google":
        failure = Rejected(
            f"{whose}: {server} answered {answer.status} to {path}: it is not GKE's metadata server",
            remedy="provider.gke is for pods in GKE with Workload Identity; elsewhere set provider.workloadIdentityProvider",
        )
    else:
        text = answer.body.decode("ascii", "replace").strip()
        if VALUE.fullmatch(text):
            return text
        failure = NotReady(f"{whose}: GKE's metadata server has no usable {path}", remedy="check that the node pool has Workload Identity")
    raise failure
