"""Identity tokens from a Kubernetes API server, by TokenRequest: a ServiceAccount's, for the audiences of the provider."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from agent.claims import read_token
from agent.errors import RefreshError, Rejected
from agent.kube.client import Kube, text_at
from agent.kube.credential_files import LOOK_SECONDS
from agent.kube.errors import Attempt
from agent.model import IdentityToken
from agent.settings import Duration, Settings
from agent.toolbox import Toolbox

LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$(?!\n)"
"""Names of namespaces: RFC 1123 labels. Python's `$` alone would let a line break follow."""
SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$(?!\n)"
"""Names of most other objects: RFC 1123 subdomains."""
Namespace = Annotated[str, msgspec.Meta(pattern=LABEL, max_length=63)]
ObjectName = Annotated[str, msgspec.Meta(pattern=SUBDOMAIN, max_length=253)]
MIN_LIFETIME_SECONDS = 600
"""The API server grants no shorter one (KEP-1205)."""
MAX_LIFETIME_SECONDS = 2**32
"""The API server accepts no request for more. The lifetime that it grants may be shorter, and counts."""


CLOCKS_SECONDS = 60
"""A token may live so much shorter than it was asked for without a note: it was issued a moment ago."""


class ServiceAccount(Settings):
    """Which one; a name means nothing without its namespace."""

    namespace: Namespace
    name: ObjectName = ""
    """Empty only in a file: `tenancy.defaultServiceAccount` takes its place, or the file is refused."""
    by_default: ClassVar[bool] = False


class DefaultServiceAccount(ServiceAccount):
    """Named by `tenancy.defaultServiceAccount`, and not by the identity: its owner cannot correct that."""

    by_default: ClassVar[bool] = True


class BoundTo(Settings):
    """The token dies with this object."""

    kind: Literal["Pod", "Secret"]
    name: ObjectName
    uid: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z-]*$(?!\n)", max_length=64)] = ""
    """Of the very one, so that another of the same name will not do."""


class KubernetesSettings(Settings, tag="kubernetes", tag_field="type"):
    """A ServiceAccount's token."""

    service_account: ServiceAccount
    lifetime: Duration = Duration(3600)
    bound_to: Literal["pod"] | BoundTo | None = None
    """`pod`: the agent's own, which the API server allows only for the pod's own ServiceAccount."""
    kubeconfig: str | None = None
    """In the cluster, the agent's own service account is used without one."""


class KubernetesSource:
    """Requests a new token each time, and keeps none."""

    def __init__(self, settings: KubernetesSettings, identity: str, toolbox: Toolbox) -> None:
        self._settings = settings
        self._identity = identity
        self._clock = toolbox.clock
        self._clients = toolbox.kube
        self._refused = asyncio.Event()
        """Set while the last fetch failed in a way that other credentials of the agent may mend."""
        self._version = 0
        """Of those credentials, at that fetch."""

    @property
    def host(self) -> str:
        return self._kube.host if self._clients else ""

    async def fetch(self, audiences: Sequence[str]) -> IdentityToken:
        """Return a token for these audiences; without any, one for the API server itself."""
        account = self._settings.service_account
        kube = self._kube
        try:
            answer = await kube.ask(
                "POST",
                f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.name}/token",
                Attempt(
                    verb="create",
                    resource="serviceaccounts/token",
                    namespace=account.namespace,
                    name=account.name,
                    by_default=account.by_default,
                ),
                whose=self._identity,
                body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": self._spec(audiences)},
            )
        except RefreshError as error:
            if error.retry_after is None:
                self._version = kube.credentials.version
                self._refused.set()
            raise
        self._refused.clear()
        companions = {"namespace": account.namespace, **({"ca.crt": kube.ca} if kube.ca else {})}
        token = read_token(
            text_at(answer, "status", "token"),
            whose=f"{self._identity}: the API server's answer",
            now=self._clock.now(),
            given_expiry=_moment(text_at(answer, "status", "expirationTimestamp")),
            companions=companions,
        )
        if token.subject != (wanted := f"system:serviceaccount:{account.namespace}:{account.name}"):
            raise Rejected(
                f"{self._identity}: the API server's answer is a token of another subject than {wanted}",
                remedy=f"check that {kube.host} is the API server of the cluster, and check the proxy before it",
            )
        return replace(token, note=self._shortened(token))

    def _shortened(self, token: IdentityToken) -> str:
        """Return a note on a token that is shorter than requested: kube-apiserver says so in a `Warning` header only."""
        asked, granted = self._settings.lifetime.seconds, (token.expires_at - token.issued_at).total_seconds()
        if granted >= asked - CLOCKS_SECONDS:
            return ""
        return f"the API server granted a token of {granted:.0f} s, not of {asked} s (--service-account-max-token-expiration)"

    async def changed(self) -> None:
        """Return when the files of the agent's own credentials changed after they were refused: a token is as good as it was given."""
        while True:
            await self._refused.wait()
            await self._clock.sleep(LOOK_SECONDS)
            if self._refused.is_set() and await self._kube.credentials.changed(self._version):
                self._refused.clear()
                return

    @property
    def _kube(self) -> Kube:
        if self._clients is None:
            raise Rejected(f"{self._identity}: no Kubernetes API server is configured")
        return self._clients.client(self._settings.kubeconfig)

    def _spec(self, audiences: Sequence[str]) -> dict[str, Any]:
        spec: dict[str, Any] = {"expirationSeconds": self._settings.lifetime.seconds}
        if audiences:
            spec["audiences"] = list(audiences)
        if bound := self._bound():
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": bound.kind,
                "name": bound.name,
                **({"uid": bound.uid} if bound.uid else {}),
            }
        return spec

    def _bound(self) -> BoundTo | None:
        """Return the object that the token is bound to. Raises Rejected if that is the agent's own pod, and the agent does not know it."""
        wanted, account = self._settings.bound_to, self._settings.service_account
        if wanted != "pod":
            return wanted
        pod = self._clients.pod if self._clients else None
        if pod is None:
            raise Rejected(
                f"{self._identity}: boundTo: pod, but the agent does not know its pod",
                remedy="set POD_NAME, POD_NAMESPACE and POD_UID by the downward API (docs/rbac.md)",
            )
        if pod.namespace != account.namespace:
            raise Rejected(
                f"{self._identity}: boundTo: pod, but the agent's pod is in namespace {pod.namespace}, not {account.namespace}",
                remedy="a token can be bound to a pod of its own ServiceAccount only: remove boundTo, or run the agent in such a pod",
            )
        return BoundTo(kind="Pod", name=pod.name, uid=pod.uid)


def _moment(text: str) -> datetime | None:
    """Return a time in RFC 3339, as the API server writes it; None if it is not one."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):  # in year 1 or 9999, a zone leads beyond what can be counted
        return None
