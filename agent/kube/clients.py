"""The process's one client for each kubeconfig, and the agent's own pod."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agent.clock import Clock
from agent.kube.client import REQUEST_TIMEOUT_SECONDS, Kube
from agent.kube.credentials import SERVICE_ACCOUNT, from_kubeconfig, in_cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The agent's own, by the downward API."""

    namespace: str
    name: str
    uid: str


class KubeClients:
    """Created once, at start, without loading anything; `async with` or `close` closes it."""

    def __init__(
        self, clock: Clock, environ: Mapping[str, str], *, service_account: Path = SERVICE_ACCOUNT, timeout: float = REQUEST_TIMEOUT_SECONDS
    ) -> None:
        self._clock = clock
        self._environ = environ
        self._folder = service_account
        self._timeout = timeout
        self._clients: dict[str, Kube] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def client(self, kubeconfig: str | None = None) -> Kube:
        """Return the client for this kubeconfig, or for the pod's own service account; the same one each time."""
        name = kubeconfig or ""
        if name not in self._clients:
            path = Path(kubeconfig) if kubeconfig else None
            self._clients[name] = Kube(
                f"the API server of {kubeconfig}" if kubeconfig else "the cluster's API server",
                lambda read: from_kubeconfig(path, read) if path else in_cluster(self._environ, self._folder, read),
                self._clock,
                timeout=self._timeout,
            )
        return self._clients[name]

    @property
    def pod(self) -> Pod | None:
        """Return the pod that POD_NAMESPACE, POD_NAME and POD_UID name; None if one of them is missing."""
        found = Pod(
            namespace=self._environ.get("POD_NAMESPACE", ""),
            name=self._environ.get("POD_NAME", ""),
            uid=self._environ.get("POD_UID", ""),
        )
        return found if found.namespace and found.name and found.uid else None

    async def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        for client in self._clients.values():
            await client.close()
