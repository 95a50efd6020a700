"""The configuration as one frozen value. Its defaults are defined here and in the adapters' settings, nowhere else.

`loading.py` reads the file, and `explain.py` reports its errors.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec

from agent.dialects import DialectName
from agent.issuer.settings import IssuerBlock
from agent.providers import ProviderSettings
from agent.settings import Address, Duration, Settings, digest
from agent.sinks import SinkSettings
from agent.sources import SourceSettings
from agent.sources.kubernetes import Namespace, ObjectName

Fraction = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Jitter = Annotated[float, msgspec.Meta(ge=0, le=0.5)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1024)]
NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$(?!\n)"
"""Python's `$`, and so msgspec's, matches before a final line break; every pattern of a setting therefore ends like this one."""
Name = Annotated[str, msgspec.Meta(pattern=NAME, max_length=253)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class BackoffSettings(Settings):
    """Pauses between attempts after failures."""

    initial: Duration = Duration(1)
    max: Duration = Duration(60)


class Refresh(Settings):
    """When the agent replaces credentials, for all identities."""

    at: Fraction = 0.8
    jitter: Jitter = 0.05
    max_age: Duration = Duration(86400)
    max_use: Duration | None = None
    timeout: Duration = Duration(10)
    concurrency: Positive = 16
    backoff: BackoffSettings = BackoffSettings()


class IdentityRefresh(Settings):
    """Settings of one identity that differ from the general ones."""

    at: Fraction | None = None
    jitter: Jitter | None = None
    max_age: Duration | None = None
    max_use: Duration | None = None
    timeout: Duration | None = None


class Control(Settings):
    """The socket that `status`, `renew`, `revoke`, `wait` and `doctor` use; mode 0600."""

    socket: str = "/run/wi-agent/agent.sock"
    ledger: str | None = None
    """None: the socket's path with `.ledger` after it."""

    @property
    def ledger_path(self) -> str:
        """Return the path of the ledger."""
        return self.ledger or f"{self.socket}.ledger"


class Admin(Settings):
    """GET /metrics, /healthz, /readyz and nothing else."""

    listen: tuple[Address, ...] = (Address("", 9480),)


class Metadata(Settings):
    """The endpoint that SDKs ask for credentials."""

    listen: tuple[Address, ...] = (Address("127.0.0.1", 9481),)
    allow_non_loopback: bool = False


class ImdsFacts(Settings):
    """Facts that the dialect imds serves beside the credential."""

    v1: bool = False
    """Also answer requests without a session token: version 1 of the protocol, which forged requests reach more easily."""
    availability_zone: Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,}(-[a-z0-9]+)+[a-z]$(?!\n)", max_length=64)] | None = None
    """None: zone `a` of the provider's region; SDKs read their region from it."""


class GceFacts(Settings):
    """Facts that the dialect gce serves beside the credential; without a setting they follow from the provider, or are not served."""

    project_id: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9.:-]*$(?!\n)", max_length=253)] | None = None
    project_number: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,30}$(?!\n)")] | None = None
    zone: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+(-[a-z0-9]+)+$(?!\n)", max_length=63)] | None = None
    """Such as europe-west1-b."""
    universe_domain: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9.-]+$(?!\n)", max_length=253)] | None = None
    cluster_name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]+$(?!\n)", max_length=63)] | None = None
    cluster_location: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]+$(?!\n)", max_length=63)] | None = None
    email: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._@-]+$(?!\n)", max_length=254)] | None = None
    """None: the provider's service account, else the pool of the project (PROJECT.svc.id.goog), as GKE has it."""


class EcsFacts(Settings):
    """Facts that the dialect ecs serves beside the credential."""

    v1: bool = False
    """Also answer requests without a session token, as ECS does in its normal mode, which forged requests reach more easily."""
    zone_id: Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,}(-[a-z0-9]+)+$(?!\n)", max_length=64)] | None = None
    """Such as eu-central-1a; without it the endpoint serves no zone."""


class Serve(Settings):
    """How the agent serves the identity to SDKs: in the listed dialects only."""

    dialects: tuple[DialectName, ...] = ()
    port: Port | None = None
    """A port of its own, on the hosts of metadata.listen, where well-known paths are this identity's. For clients that drop the path of
    the address that they are configured with (the Node SDKs of AWS and Google)."""
    default: bool = False
    """The well-known paths of its dialects are this identity's on metadata.listen itself; one identity for each dialect."""
    authorization: str | None = None
    """The text that clients send; `${NAME}` takes it from the environment. Without it the agent generates one."""
    imds: ImdsFacts = ImdsFacts()
    gce: GceFacts = GceFacts()
    ecs: EcsFacts = EcsFacts()


class Shutdown(Settings):
    """After SIGTERM."""

    delay: Duration = Duration(0)


class Tenancy(Settings):
    """The ServiceAccounts that identities may be; without this block, every ServiceAccount that an identity names."""

    namespaces: tuple[Namespace, ...] | None = None
    """Namespaces of ServiceAccounts; None: any."""
    default_service_account: ObjectName | None = None
    """Name of the ServiceAccount in the namespace of an identity that has a namespace and no name."""
    require_service_account: bool = False
    object_level: bool = True


class Identity(Settings):
    """One identity: the source of its token, the provider that exchanges it, and where to write and serve the result."""

    name: Name
    source: SourceSettings
    provider: ProviderSettings
    required: bool = True
    sinks: tuple[SinkSettings, ...] = ()
    serve: Serve = Serve()
    refresh: IdentityRefresh = IdentityRefresh()


class Config(Settings):
    """The whole configuration."""

    identities: tuple[Identity, ...]
    """Required: the agent refuses an empty or truncated file instead of withdrawing every identity; `[]` withdraws them."""
    refresh: Refresh = Refresh()
    control: Control = Control()
    admin: Admin = Admin()
    metadata: Metadata = Metadata()
    issuer: IssuerBlock | None = None
    shutdown: Shutdown = Shutdown()
    tenancy: Tenancy = Tenancy()


def named_files(identity: Identity) -> tuple[str, ...]:
    """Return the paths of the files that decide which servers the agent asks for this identity: `kubeconfig`, `caFile`."""
    kubeconfig = getattr(identity.source, "kubeconfig", None)
    return (*((kubeconfig,) if kubeconfig else ()), *identity.provider.named_files)


def identity_digest(identity: Identity, config: Config, uid: str = "", files: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the digest of every setting that shapes the identity's credentials and its files.

    `uid`: of the ServiceAccount whose annotations name the principal, if any. `files`: fingerprints by path.
    """
    kind = identity.source.__struct_config__.tag
    tenants = config.tenancy.namespaces if kind == "file" else None  # only the tokens of this source name their tenant
    issuer = config.issuer if identity.source.__struct_config__.tag == "issuer" else None
    return digest(
        identity.name,
        identity.source,
        identity.provider,
        f"{issuer.url.text}\n{issuer.algorithm}" if issuer else uid,
        *identity.sinks,
        *(f"{path}\n{files.get(path, '')}" for path in named_files(identity)),
        *(() if tenants is None else ("tenants", *tenants)),
    )


def own_ports(config: Config) -> dict[str, tuple[Address, ...]]:
    """Return the addresses of the identities with a port of their own, by name."""
    hosts = dict.fromkeys(address.host for address in config.metadata.listen if not address.path)
    return {
        identity.name: tuple(Address(host, identity.serve.port) for host in hosts) for identity in config.identities if identity.serve.port
    }
