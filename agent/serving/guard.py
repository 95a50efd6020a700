"""Refuses forwarded, misdirected and remote requests before any route is looked up.

Sources of the rules, and of the names that real clients put into `Host`: EC2 and GCE refuse forwarded requests
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html,
https://cloud.google.com/compute/docs/metadata/querying-metadata).
"""

import hmac
from collections.abc import Iterable
from ipaddress import ip_address

from aiohttp import hdrs, web
from multidict import istr

from agent.dialects import METADATA_ADDRESSES
from agent.model import Secret
from agent.refusals import Refusal
from agent.serving.memo import BoundedCache
from agent.settings import Address

NAMES = ("127.0.0.1", "localhost", "[::1]", "metadata.google.internal", "metadata.google.internal.", "metadata")
HOSTS = frozenset({*NAMES, *(f"[{host}]" if ":" in host else host for host in METADATA_ADDRESSES)})
"""The values of `Host` that clients send: loopback, and the names and addresses of the clouds' metadata services."""
FORWARDED = frozenset(
    {
        "forwarded", "forwarded-for", "via",
        "x-forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-forwarded-server",
        "x-original-forwarded-for", "x-original-host", "x-real-ip",
        "client-ip", "true-client-ip", "x-client-ip", "x-cluster-client-ip",
        "cf-connecting-ip", "cf-connecting-ipv6", "cf-ray", "fastly-client-ip",
        "x-azure-clientip", "x-azure-socketip", "x-appengine-user-ip",
    }
)  # fmt: skip
"""Headers that only a proxy adds, in lower case. EC2 and GCE refuse the first. No legitimate proxy stands between a client and a
loopback listener, so the guard refuses the others, too."""
FORWARDED_PREFIX = "x-envoy-"
"""Envoy adds one of several, as it is configured (https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/headers)."""
MAX_CACHED_HEADERS = 256
MAX_HEADER_NAME_CHARACTERS = 64
"""Longer names are not cached, and are cut in messages."""


class Guard:
    """Checks the requests of one endpoint."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        own = [address.host for address in addresses if address.host]
        self._hosts = HOSTS | {f"[{host}]" if ":" in host else host for host in own}
        self._peers = frozenset(own)
        self._known: set[str] = set()
        self._proxys: BoundedCache[bool] = BoundedCache(MAX_CACHED_HEADERS, MAX_HEADER_NAME_CHARACTERS)
        """Whether only a proxy adds the header, by its name as clients write it."""

    def objection(self, request: web.BaseRequest) -> tuple[Refusal, str] | None:
        """Return why this request is refused, as a code and a sentence; None if it is not."""
        headers = request.headers
        for name in headers:
            known = self._proxys.get(name)
            if self._is_proxys(name) if known is None else known:
                return Refusal.FORWARDED, f"forwarded requests are refused ({name[:MAX_HEADER_NAME_CHARACTERS]})"
        hosts = headers.getall(hdrs.HOST, [])
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return Refusal.WRONG_HOST, "this is not the host that was asked for"
        if not self._is_near(request):
            return Refusal.NOT_LOCAL, "only this machine may ask"
        return None

    def _is_proxys(self, name: str) -> bool:
        small = name.lower()
        found = small in FORWARDED or small.startswith(FORWARDED_PREFIX)
        self._proxys.keep(name, found)
        return found

    def _is_ours(self, host: str) -> bool:
        """Compare the host part only: Alibaba's SDK sends no port, gcp-metadata a trailing dot."""
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
            return peer is not None  # a socket file has an empty peer name, and its mode guards it; without a transport there is no client
        return peer[0] == "127.0.0.1" or peer[0] in self._peers or _is_loopback(peer[0])


def is_authorized(request: web.BaseRequest, authorization: Secret | None, header: istr = hdrs.AUTHORIZATION) -> bool:
    """Return whether the request sends this identity's authorization in that header, raw, as SDKs send it."""
    sent = request.headers.getall(header, [])
    return len(sent) == 1 and same(sent[0], authorization)


def same(sent: str, authorization: Secret | None) -> bool:
    """Return whether the authorization is the one that was sent, in constant time; False if the identity has none."""
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
