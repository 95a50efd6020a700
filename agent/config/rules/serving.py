"""Rules about how identities are served."""

from collections.abc import Iterator

from agent.config.fault import Finding, Place
from agent.config.model import Config, Identity
from agent.dialects import DIALECTS
from agent.providers.gcp.settings import GcpSettings

ECS, HTTP = "100.100.100.200", 80


def served(config: Config) -> Iterator[tuple[Place, Identity]]:
    """Who is, and where that stands."""
    for index, identity in enumerate(config.identities):
        if identity.serve.dialects:
            yield ("identities", index, "serve"), identity


def reachable(config: Config) -> Iterator[Finding]:
    """Clients of some dialects ask for well-known paths only."""
    for place, identity in served(config):
        serve = identity.serve
        for position, dialect in enumerate(serve.dialects):
            if not DIALECTS[dialect].named and not serve.default and serve.port is None:
                message = f"no path of {dialect} names an identity: set serve.default: true for one identity, or serve.port for each"
                grounds: tuple[Place, ...] = ((*place, "default"), (*place, "port"))
                yield Finding(place=(*place, "dialects", position), message=message, rests_on=grounds)
        for setting in ("default", "port"):
            if getattr(serve, setting) and not any(DIALECTS[dialect].rooted for dialect in serve.dialects):
                message = "has no effect: its dialects have no well-known paths"
                yield Finding(place=(*place, setting), message=message, warning=True, rests_on=((*place, "dialects"),))


def one_default(config: Config) -> Iterator[Finding]:
    """A well-known path is one identity's."""
    taken: dict[str, Place] = {}
    for place, identity in served(config):
        rooted = [dialect for dialect in identity.serve.dialects if DIALECTS[dialect].rooted and identity.serve.default]
        if clash := next((dialect for dialect in rooted if dialect in taken), None):
            other = taken[clash]
            message = f"another identity is the default of {clash} already: give this one serve.port"
            yield Finding(place=(*place, "default"), message=message, other=other, rests_on=(other,))
        for dialect in rooted:
            taken.setdefault(dialect, (*place, "default"))


def unguarded(config: Config) -> Iterator[Finding]:
    """Where nothing is to be presented, every process that reaches the address is served."""
    for place, identity in served(config):
        for position, dialect in enumerate(identity.serve.dialects):
            if not DIALECTS[dialect].authorized:
                guarded = (
                    next(name for name, one in DIALECTS.items() if one.authorized and one.provider == DIALECTS[dialect].provider)
                    if DIALECTS[dialect].provider != "gcp"
                    else ""
                )
                remedy = f"; {guarded} asks for an authorization" if guarded else ""
                message = f"{dialect} serves every process that reaches the address: only where all of them are trusted alike{remedy}"
                yield Finding(place=(*place, "dialects", position), message=message, warning=True)


def wired(config: Config) -> Iterator[Finding]:
    """Alibaba Cloud's SDKs ask one address, which is in them, and can be sent nowhere else."""
    addresses = [address for address in config.metadata.listen if address.host in {ECS, ""} and not address.path]
    for place, identity in served(config):
        serve = identity.serve
        own = addresses if serve.port == HTTP else []
        at_root = [address for address in addresses if address.port == HTTP and serve.default]
        if "ecs" in serve.dialects and not own and not at_root:
            message = f'SDKs ask {ECS}:{HTTP} and nothing else: add "{ECS}:{HTTP}" to metadata.listen, and serve.default: true here'
            at = (*place, "dialects", serve.dialects.index("ecs"))
            yield Finding(place=at, message=message, warning=True, rests_on=(("metadata", "listen"),))


def projectless(config: Config) -> Iterator[Finding]:
    """SDKs ask a metadata server for the project, and in GKE the configuration says nothing that it follows from."""
    for place, identity in served(config):
        provider, gce = identity.provider, identity.serve.gce
        if "gce" not in identity.serve.dialects or not isinstance(provider, GcpSettings) or not provider.gke:
            continue
        if not (gce.project_id or provider.project or provider.service_account):
            message = "not set, and with gke: true it follows from nothing else: SDKs that ask for the project get none"
            yield Finding(place=(*place, "gce", "projectId"), message=message, warning=True, rests_on=((*place[:2], "provider"),))


def unbounded(config: Config) -> Iterator[Finding]:
    """`scopes` look like a bound, and clients of the endpoint may ask for others."""
    for place, identity in served(config):
        if "gce" in identity.serve.dialects and isinstance(identity.provider, GcpSettings) and identity.provider.scopes_allowed is None:
            message = "not set: every client of the endpoint may ask for any scope, whatever `scopes` says: list what else is needed, or []"
            grounds: tuple[Place, ...] = ((*place, "dialects"),)
            yield Finding(place=(*place[:2], "provider", "scopesAllowed"), message=message, warning=True, rests_on=grounds)


RULES = (reachable, one_default, unguarded, wired, projectless, unbounded)
