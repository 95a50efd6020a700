"""Rules about where the agent listens."""

import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

from agent.config.fault import Finding, Place
from agent.config.model import Config, own_ports
from agent.dialects import METADATA_ADDRESSES
from agent.settings import Address

CLOUD_METADATA_ADDRESSES = {ip_address(each) for each in METADATA_ADDRESSES}
MAX_SOCKET_PATH_BYTES = 107
"""Linux's sockaddr_un holds 108 with the final NUL (unix(7))."""


def listeners(config: Config) -> Iterator[tuple[Place, Address]]:
    """Yield every address that the agent listens on, and its place in the configuration."""
    blocks = {"admin": config.admin.listen, "metadata": config.metadata.listen, "issuer": config.issuer.listen if config.issuer else ()}
    for block, addresses in blocks.items():
        yield from (((block, "listen", index), address) for index, address in enumerate(addresses))
    own = own_ports(config)
    for index, identity in enumerate(config.identities):
        yield from ((("identities", index, "serve", "port"), address) for address in own.get(identity.name, ()))
    yield ("control", "socket"), Address("", 0, config.control.socket)


def once(config: Config) -> Iterator[Finding]:
    """Refuse an address that two listeners have."""
    seen: dict[object, tuple[int, Place]] = {}
    for number, (place, address) in enumerate(listeners(config)):
        asked, own = _places(address)
        _, other = min((seen[key] for key in asked if key in seen), default=(0, None))
        if other:
            message = f"the agent already listens on {address}: choose another port or path"
            yield Finding(place=place, message=message, other=other, rests_on=(other,))
        for key in own:
            seen.setdefault(key, (number, place))


def private(config: Config) -> Iterator[Finding]:
    """Refuse a metadata listener that other machines reach, unless `allowNonLoopback` permits it."""
    for index, address in enumerate(config.metadata.listen if not config.metadata.allow_non_loopback else ()):
        if not address.loopback and not _link_local(address):
            message = f"other machines can reach {address}: use 127.0.0.1, [::1] or unix:, or set allowNonLoopback: true"
            yield Finding(place=("metadata", "listen", index), message=message, rests_on=(("metadata", "allowNonLoopback"),))


def anywhere(config: Config) -> Iterator[Finding]:
    """Refuse a served identity without a listener."""
    for index, identity in enumerate(config.identities if not config.metadata.listen else ()):
        if identity.serve.dialects:
            message = "the agent cannot serve it, as metadata.listen is empty: add an address there"
            yield Finding(place=("identities", index, "serve", "dialects"), message=message, rests_on=(("metadata", "listen"),))


def sockets(config: Config) -> Iterator[Finding]:
    """Refuse a path too long for a socket."""
    for place, address in listeners(config):
        if (address.path or not address.port) and len(os.fsencode(address.path)) > MAX_SOCKET_PATH_BYTES:
            yield Finding(
                place=place, message=f"a socket's path has at most {MAX_SOCKET_PATH_BYTES} bytes: write a shorter or relative path"
            )


def _places(address: Address) -> tuple[list[object], list[object]]:
    """Return the keys of the listeners that an address clashes with, and those under which others clash with it."""
    if address.path:
        path = os.path.realpath(address.path) if len(address.path) <= MAX_SOCKET_PATH_BYTES else address.path  # which `sockets` refuses
        return [path], [path]
    if not address.port:
        return [], []
    host, port = _host(address), address.port
    return [(port, host), (port, "")] if host else [(port, None)], [(port, host), (port, None)]


def _host(address: Address) -> str:
    try:
        found = ip_address(address.host)
    except ValueError:
        return "127.0.0.1" if address.host == "localhost" else address.host.lower()
    return "" if found.is_unspecified else str(found)


def _link_local(address: Address) -> bool:
    try:
        return ip_address(address.host) in CLOUD_METADATA_ADDRESSES
    except ValueError:
        return False


def ledger(config: Config) -> Iterator[Finding]:
    """Refuse a ledger without a file of its own. Beside the socket it has one if the agent can listen there at all."""
    place: Place = ("control", "ledger")
    if config.control.ledger is None:
        return
    path = os.path.abspath(config.control.ledger)  # noqa: PTH100  # Path.absolute keeps `..`
    if not config.control.ledger or path == os.path.abspath(config.control.socket):  # noqa: PTH100  # as above
        yield Finding(place=place, message="the ledger needs a file of its own: write a path, such as /var/lib/wi-agent/ledger")
        return
    around = next(folder for folder in Path(path).parents if os.path.lexists(folder))
    if os.path.isdir(path) or not os.path.isdir(around):  # noqa: PTH112  # no error where it may not be looked at
        yield Finding(place=place, message=f"{path if around.is_dir() else around} exists and cannot hold the ledger: choose another path")
    elif not os.access(around, os.W_OK | os.X_OK):
        message = (
            f"uid {os.geteuid()} cannot write to {around}, so a restart forgets revocations, and removals while the agent is stopped:"
            " choose another path"
        )
        yield Finding(place=place, message=message, warning=True)


RULES = (once, private, anywhere, sockets, ledger)
