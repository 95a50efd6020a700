"""The addresses that clients use: whether this network namespace has them, and which one serves an identity.

The doctor sends no request to a missing address: on a cloud's machine the cloud's own metadata service would answer there.
"""

import errno
import socket
from ipaddress import ip_address

from agent.config.model import Config, Identity
from agent.dialects import ECS_HOST, ECS_PORT
from agent.doctor.case import Case, broken
from agent.doctor.report import Finding
from agent.envvars import ServedAt
from agent.identities.addresses import spot

LINK = "endpoint"
ALIBABAS = f"{ECS_HOST}:{ECS_PORT}"
"""The address that Alibaba Cloud's SDKs use in the dialect `ecs`."""


def asked(config: Config, identity: Identity, dialect: str) -> tuple[ServedAt, str]:
    """Return the address that this dialect's clients use, and its host: for `ecs` Alibaba Cloud's own, if the agent listens there."""
    where = spot(config, identity, dialect)
    if dialect == "ecs":
        listening = {one.port for one in config.metadata.listen if one.host in {ECS_HOST, ""} and not one.path}
        if listening and (identity.serve.port == ECS_PORT or (identity.serve.default and ECS_PORT in listening)):
            return ServedAt(dialect=dialect, base=where.base, root=f"http://{ECS_HOST}", facts=where.facts), ECS_HOST
    return where, (where.root or where.base).removeprefix("http://").rpartition(":")[0].strip("[]")


def wired(where: ServedAt) -> bool:
    """Whether SDKs whose address cannot be configured use this one."""
    return where.dialect != "ecs" or where.root == f"http://{ECS_HOST}"


def missing(case: Case) -> dict[str, Finding]:
    """Return a finding for each address that clients use and no interface here has, by host."""
    config, identity = case.config, case.identity
    hosts = [address.host for address in config.metadata.listen if address.host and not address.path]
    hosts += [asked(config, identity, dialect)[1] for dialect in identity.serve.dialects]
    return {host: _missing(host) for host in dict.fromkeys(hosts) if absent(host)}


def absent(host: str) -> bool:
    """Return whether no interface of this network namespace has that address; names are not looked up."""
    try:
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError as error:
        return error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
    return False


def _missing(host: str) -> Finding:
    width = 128 if ":" in host else 32
    remedy = (
        f"as root, in the network that agent and workload share, before the agent starts: ip address add {host}/{width} dev lo"
        if not ip_address(host).is_loopback
        else "remove it from metadata.listen: this machine has no such loopback address"
    )
    return broken(LINK, f"{host} is on no interface here, so no SDK can reach the agent there", remedy)
