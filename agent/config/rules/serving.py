"""Rules about how identities are served."""

from collections.abc import Iterator

from agent.config.fault import Finding, Place
from agent.config.model import Config, Identity
from agent.dialects import DIALECTS, ECS_HOST, ECS_PORT
from agent.providers.gcp.settings import GcpSettings


def served(config: Config) -> Iterator[tuple[Place, Identity]]:
    """Yield each served identity, and the place of its `serve` block."""
    for index, identity in enumerate(config.identities):
        if identity.serve.dialects:
            yield ("identities", index, "serve"), identity


def reachable(config: Config) -> Iterator[Finding]:
    """Refuse a dialect whose clients ask for well-known paths only, if the identity has none."""
    for place, identity in served(config):
        serve = identity.serve
        for position, dialect in enumerate(serve.dialects):
            if not DIALECTS[dialect].named and not serve.default and serve.port is None:
                message = f"paths of {dialect} do not name the identity: set serve.default: true for one identity, or serve.port for each"
                grounds: tuple[Place, ...] = ((*place, "default"), (*place, "port"))
                yield Finding(place=(*place, "dialects", position), message=message, rests_on=grounds)
        for setting, value in (("default", serve.default), ("port", serve.port)):
            if value and not any(DIALECTS[dialect].rooted for dialect in serve.dialects):
                message = "has no effect, as its dialects have no well-known paths: remove it"
                yield Finding(place=(*place, setting), message=message, warning=True, rests_on=((*place, "dialects"),))


def one_default(config: Config) -> Iterator[Finding]:
    """Refuse two default identities of one dialect: each well-known path serves one."""
    taken: dict[str, Place] = {}
    for place, identity in served(config):
        rooted = [dialect for dialect in identity.serve.dialects if DIALECTS[dialect].rooted and identity.serve.default]
        if clash := next((dialect for dialect in rooted if dialect in taken), None):
            other = taken[clash]
            message = f"another identity is already the default of {clash}: set serve.port here instead"
            yield Finding(place=(*place, "default"), message=message, other=other, rests_on=(other,))
        for dialect in rooted:
            taken.setdefault(dialect, (*place, "default"))


def unguarded(config: Config) -> Iterator[Finding]:
    """Warn of a dialect without authorization, which serves every process that reaches the address."""
    for place, identity in served(config):
        for position, dialect in enumerate(identity.serve.dialects):
            if not DIALECTS[dialect].authorized:
                guarded = (
                    next(name for name, one in DIALECTS.items() if one.authorized and one.provider == DIALECTS[dialect].provider)
                    if DIALECTS[dialect].provider != "gcp"
                    else ""
                )
                remedy = f", or use {guarded}, which requires an authorization" if guarded else ""
                message = f"{dialect} serves every process that reaches the address: use it only if you trust all of them alike{remedy}"
                yield Finding(place=(*place, "dialects", position), message=message, warning=True)


def wired(config: Config) -> Iterator[Finding]:
    """Warn of dialect `ecs` without the one address that Alibaba Cloud's SDKs ask; no setting of theirs changes it."""
    addresses = [address for address in config.metadata.listen if address.host in {ECS_HOST, ""} and not address.path]
    for place, identity in served(config):
        serve = identity.serve
        own = addresses if serve.port == ECS_PORT else []
        at_root = [address for address in addresses if address.port == ECS_PORT and serve.default]
        if "ecs" in serve.dialects and not own and not at_root:
            address = f"{ECS_HOST}:{ECS_PORT}"
            message = f'SDKs ask {address} and no other address: add "{address}" to metadata.listen, and serve.default: true here'
            at = (*place, "dialects", serve.dialects.index("ecs"))
            yield Finding(place=at, message=message, warning=True, rests_on=(("metadata", "listen"),))


def projectless(config: Config) -> Iterator[Finding]:
    """Warn of dialect `gce` without a project: SDKs ask for it, and with `gke: true` no other setting implies it."""
    for place, identity in served(config):
        provider, gce = identity.provider, identity.serve.gce
        if "gce" not in identity.serve.dialects or not isinstance(provider, GcpSettings) or not provider.gke:
            continue
        if not (gce.project_id or provider.project or provider.service_account):
            message = "not set, and with gke: true no other setting implies it, so SDKs that ask for the project get 404: set it"
            yield Finding(place=(*place, "gce", "projectId"), message=message, warning=True, rests_on=((*place[:2], "provider"),))


def unbounded(config: Config) -> Iterator[Finding]:
    """Warn of `scopes` without `scopesAllowed`: clients of the endpoint may ask for others."""
    for place, identity in served(config):
        if "gce" in identity.serve.dialects and isinstance(identity.provider, GcpSettings) and identity.provider.scopes_allowed is None:
            message = "not set, so clients of the endpoint may ask for any scope besides `scopes`: list those that they need, or []"
            grounds: tuple[Place, ...] = ((*place, "dialects"),)
            yield Finding(place=(*place[:2], "provider", "scopesAllowed"), message=message, warning=True, rests_on=grounds)


RULES = (reachable, one_default, unguarded, wired, projectless, unbounded)
