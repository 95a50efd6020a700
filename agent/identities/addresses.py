"""The addresses at which clients beside the agent reach an identity."""

from agent.config.model import Config, Identity, own_ports
from agent.dialects import DIALECTS
from agent.envvars import ServedAt, Variable
from agent.errors import ConfigError
from agent.identities.profiles import facts
from agent.settings import Address


def base_url(config: Config) -> str:
    """Return the URL of the metadata endpoint. Raises ConfigError if it has no TCP address."""
    for address in config.metadata.listen:
        if not address.path:
            return _url(address)
    raise ConfigError("the metadata endpoint has no TCP address", remedy="add one to metadata.listen: SDKs use no socket files")


def spot(config: Config, identity: Identity, dialect: str, authorization: str | Variable = "") -> ServedAt:
    """One dialect of it. `authorization`: the path of its file, or the variable that holds it. Raises ConfigError as above."""
    base = base_url(config)
    own = own_ports(config).get(identity.name, ())
    root = _url(own[0]) if own else base if identity.serve.default else ""
    return ServedAt(
        dialect=dialect, base=base, root=root if DIALECTS[dialect].rooted else "", authorization=authorization, facts=facts(identity)
    )


def _url(address: Address) -> str:
    host = address.host or "127.0.0.1"
    return f"http://[{host}]:{address.port}" if ":" in host else f"http://{host}:{address.port}"
