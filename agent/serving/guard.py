"""Who may not ask at all, before any route is looked at: what was forwarded, misdirected, or comes from another machine.

The rules, and the names that real clients put into `Host`: EC2 and GCE refuse forwarded requests
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html,
https://cloud.google.com/compute/docs/metadata/querying-metadata).
"""

import hmac
from collections.abc import Iterable
from ipaddress import ip_address

from aiohttp import hdrs, web
from multidict import istr

from agent.model import Secret
from agent.settings import Address

HOSTS = frozenset(
    {
        "127.0.0.1", "localhost", "[::1]",  # loopback
        "169.254.169.254", "[fd00:ec2::254]", "[fd20:ce::254]",  # the clouds' metadata services
        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]",  # ECS, EKS Pod Identity
        "metadata.google.internal", "metadata.google.internal.", "metadata", "169.254.169.252",
        "100.100.100.200",  # Alibaba
    }
)  # fmt: skip
FORWARDED = (hdrs.X_FORWARDED_FOR, hdrs.FORWARDED, hdrs.X_FORWARDED_HOST, istr("X-Real-Ip"), hdrs.VIA)
"""A proxy between the client and a loopback listener is somebody else's."""


class Guard:
    """For one listener."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        own = [address.host for address in addresses if address.host]
        self._hosts = HOSTS | {f"[{host}]" if ":" in host else host for host in own}
        self._peers = frozenset(own)
        self._known: set[str] = set()

    def objection(self, request: web.BaseRequest) -> str:
        """Why this request is refused; empty where it is not."""
        headers = request.headers
        for name in FORWARDED:
            if name in headers:
                return f"forwarded requests are refused ({name})"
        hosts = headers.getall(hdrs.HOST, [])
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return "this is not the host that was asked for"
        if not self._is_near(request):
            return "only this machine may ask"
        return ""

    def _is_ours(self, host: str) -> bool:
        """Compares the host part only: Alibaba's SDK sends no port, gcp-metadata a trailing dot."""
        if host in self._known:
            return True
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in self._hosts or host[len(name) :].strip("0123456789") not in {"", ":"}:
            return False
        if len(self._known) < 64:
            self._known.add(host)
        return True

    def _is_near(self, request: web.BaseRequest) -> bool:
        transport = request.transport
        peer = transport.get_extra_info("peername") if transport else None
        if not isinstance(peer, tuple):
            return peer is not None  # a socket file has an empty name, and a mode to guard it; no transport, no answer
        return peer[0] == "127.0.0.1" or peer[0] in self._peers or _is_loopback(peer[0])


def knows(request: web.BaseRequest, authorization: Secret | None, header: istr = hdrs.AUTHORIZATION) -> bool:
    """Whether the request presents this identity's authorization in that header, raw, as the SDKs send it."""
    sent = request.headers.getall(header, [])
    return len(sent) == 1 and same(sent[0], authorization)


def same(sent: str, authorization: Secret | None) -> bool:
    """Compared in constant time; False where there is none."""
    if authorization is None:
        return False
    return hmac.compare_digest(sent.encode("utf-8", "surrogateescape"), authorization.reveal().encode())


def _is_loopback(peer: str) -> bool:
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
