"""The configuration as one frozen value. Defaults stand here and in the adapters' settings, nowhere else.

`loading.py` reads the file, and `explain.py` reports what is wrong with it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec

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
"""Python's `$`, and so msgspec's, would let a line break follow; every pattern of a setting therefore ends like this one."""
Name = Annotated[str, msgspec.Meta(pattern=NAME, max_length=253)]
Dialect = Literal["container", "imds", "gce", "appservice", "azure-imds", "uri", "ecs"]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class BackoffSettings(Settings):
    """Between tries after failures."""

    initial: Duration = Duration(1)
    max: Duration = Duration(60)


class Refresh(Settings):
    """When credentials are replaced, for all identities."""

    at: Fraction = 0.8
    jitter: Jitter = 0.05
    max_age: Duration = Duration(86400)
    max_use: Duration | None = None
    timeout: Duration = Duration(10)
    concurrency: Positive = 16
    backoff: BackoffSettings = BackoffSettings()


class IdentityRefresh(Settings):
    """What one identity does differently."""

    at: Fraction | None = None
    jitter: Jitter | None = None
    max_age: Duration | None = None
    max_use: Duration | None = None
    timeout: Duration | None = None


class Control(Settings):
    """The socket that `status`, `renew`, `wait` and `doctor` use; mode 0600."""

    socket: str = "/run/wi-agent/agent.sock"
    ledger: str | None = None
    """None: the socket's path with `.ledger` after it."""

    @property
    def ledger_path(self) -> str:
        """Where the ledger is stored."""
        return self.ledger or f"{self.socket}.ledger"


class Admin(Settings):
    """GET /metrics, /healthz, /readyz and nothing else."""

    listen: tuple[Address, ...] = (Address("", 9480),)


class Metadata(Settings):
    """Where SDKs ask."""

    listen: tuple[Address, ...] = (Address("127.0.0.1", 9481),)
    allow_non_loopback: bool = False


class ImdsFacts(Settings):
    """What the dialect imds says beside the credential."""

    v1: bool = False
    """Answer requests without a session token, too: version 1 of the protocol, which forged requests reach more easily."""
    availability_zone: Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,}(-[a-z0-9]+)+[a-z]$(?!\n)", max_length=64)] | None = None
    """None: zone `a` of the provider's region; SDKs read their region from it."""


class GceFacts(Settings):
    """What the dialect gce says beside the credential; what is not set follows from the provider, or is not there."""

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
    """What the dialect ecs says beside the credential."""

    v1: bool = False
    """Answer requests without a session token, too, as ECS does in its normal mode, which forged requests reach more easily."""
    zone_id: Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,}(-[a-z0-9]+)+$(?!\n)", max_length=64)] | None = None
    """Such as eu-central-1a; there is none where it is not set."""


class Serve(Settings):
    """How the identity is served to SDKs; nothing is served that is not listed."""

    dialects: tuple[Dialect, ...] = ()
    port: Port | None = None
    """Of its own, on the hosts of metadata.listen: well-known paths are this identity's there. For clients that drop a path from
    the address they are given (Node's of AWS and Google)."""
    default: bool = False
    """The well-known paths of its dialects are this identity's on metadata.listen itself; one identity for each dialect."""
    authorization: str | None = None
    """What a client has to present; `${NAME}` takes it from the environment. Without it the agent makes one up."""
    imds: ImdsFacts = ImdsFacts()
    gce: GceFacts = GceFacts()
    ecs: EcsFacts = EcsFacts()


class Shutdown(Settings):
    """After SIGTERM."""

    delay: Duration = Duration(0)


class Tenancy(Settings):
    """Whose identities may be had; without it, those of every ServiceAccount that an identity names."""

    namespaces: tuple[Namespace, ...] | None = None
    """Of ServiceAccounts; None: any."""
    default_service_account: ObjectName | None = None
    """In the namespace of the identity that names none."""
    require_service_account: bool = False
    object_level: bool = True


class Identity(Settings):
    """One identity: whence its token, for what it is exchanged, where it goes."""

    name: Name
    source: SourceSettings
    provider: ProviderSettings
    required: bool = True
    sinks: tuple[SinkSettings, ...] = ()
    serve: Serve = Serve()
    refresh: IdentityRefresh = IdentityRefresh()


class Config(Settings):
    """Everything."""

    identities: tuple[Identity, ...]
    """Required, so that a file cut short or empty is refused and does not withdraw what runs; `[]` does."""
    refresh: Refresh = Refresh()
    control: Control = Control()
    admin: Admin = Admin()
    metadata: Metadata = Metadata()
    issuer: IssuerBlock | None = None
    shutdown: Shutdown = Shutdown()
    tenancy: Tenancy = Tenancy()


def named_files(identity: Identity) -> tuple[str, ...]:
    """Paths of the files that say whom the agent asks for this identity: `kubeconfig`, `caFile`."""
    named = (getattr(identity.source, "kubeconfig", None), getattr(identity.provider, "ca_file", None))
    return tuple(path for path in named if path)


def identity_digest(identity: Identity, config: Config, uid: str = "", files: Mapping[str, str] = MappingProxyType({})) -> str:
    """Of every setting that shapes what the identity holds and how it lies in its sinks.

    `uid`: of the ServiceAccount that says who it is, where one does. `files`: fingerprints of the files that settings name, by path.
    """
    kind = identity.source.__struct_config__.tag
    tenants = config.tenancy.namespaces if kind == "file" else None  # of which only its tokens say whether they are allowed
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
    """Where the identities with a port of their own are served, by name."""
    hosts = dict.fromkeys(address.host for address in config.metadata.listen if not address.path)
    return {
        identity.name: tuple(Address(host, identity.serve.port) for host in hosts) for identity in config.identities if identity.serve.port
    }
