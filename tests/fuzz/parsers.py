"""Every parser of foreign text, as one call that takes bytes, with seeds to begin from and the failures that it may raise."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from yarl import URL

from agent import claims, metrics, providers, sanitize
from agent.config.loading import load
from agent.config.model import Identity
from agent.counters import Counters
from agent.errors import AgentError, RefreshError
from agent.issuer import index, keys
from agent.kube import credentials, objects
from agent.kube.clients import KubeClients
from agent.kube.errors import Attempt, Caller, from_status, refused, sort
from agent.model import IdentityToken, Secret
from agent.serviceaccounts.annotations import ObservedServiceAccount, effective, followed, sighted
from agent.serving.control import ControlEndpoint
from agent.serving.dialects.session_tokens import Sessions
from agent.settings import convert
from agent.sinks.files import manifest
from agent.sources.kubernetes import KubernetesSettings, KubernetesSource
from agent.store import Store
from agent.toolbox import Resources, Toolbox
from tests.fakes import START, FakeClock

ON_LOOP_SECONDS = 0.05
"""Of the processor for one input, in the event loop's own thread."""
OFF_LOOP_SECONDS = 2.0
"""The same in a thread: a configuration is refused within it."""
AGAIN = 3
"""Measurements of an input that took longer: the least counts, for the machine does other work."""
STATUSES = (200, 200, 400, 401, 403, 429, 500, 503)
TOKEN = Secret(
    ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"none"}', b'{"iss":"i","exp":9}', b"sig" * 20))
)


@dataclass(frozen=True)
class Parser:
    """One of them."""

    name: str
    read: Callable[[bytes], object]
    seeds: Sequence[bytes]
    refusals: tuple[type[Exception], ...] = (AgentError,)
    words: Sequence[bytes] = field(default=())
    """That mean something to it."""
    cpu: float = ON_LOOP_SECONDS
    """Of the processor, for one input."""


def finding(parser: Parser, data: bytes) -> str:
    """Return what is wrong with how it reads these bytes, empty if nothing is."""
    took = inf
    for _ in range(AGAIN):
        began = time.thread_time()
        try:
            parser.read(data)
        except parser.refusals:
            pass
        except Exception as error:
            return f"{parser.name}: {type(error).__name__} escapes"
        took = min(took, time.thread_time() - began)
        if took < parser.cpu:
            return ""
    return f"{parser.name}: it takes more than {parser.cpu:g} s of the processor"


class _Answering:
    """Stands where the process's HTTP session would, and gives one answer."""

    def __init__(self) -> None:
        self.data = b""

    @asynccontextmanager
    async def request(self, *_: object, **__: object) -> AsyncIterator[Any]:
        yield _Response(self.data)


class _Response:
    """Its first line is a status, by number, and a header; the rest is the body."""

    def __init__(self, data: bytes) -> None:
        first, _, self._body = data.partition(b"\n")
        self.status = STATUSES[(first[0] if first else 0) % len(STATUSES)]
        self.headers = {"Retry-After": first[1:].decode("latin-1"), "retry-after": first[1:].decode("latin-1")}
        self.content = self

    def close(self) -> None:
        """Nothing is open."""

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._body


XML = b"""<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>AKIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2026-01-01T01:00:00Z</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""
XML_ERROR = b"<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>No OpenIDConnect provider</Message></Error></ErrorResponse>"
DATE = b"Mon, 01 Jan 2026 00:00:00 +0000"
NUMBERS = (
    b"9" * 400,
    b"1e309",
    b"-1",
    b"9" * 30,
    b"9" * 5000,
    b"1e-400",
    b"NaN",
    b"Infinity",
    b"true",
    b"null",
    b"0.5",
    b"253402300800",
    b'"9"',
    b"[]",
)
CLOUDS: dict[str, tuple[dict[str, Any], Sequence[bytes], Sequence[bytes]]] = {
    "aws": (
        {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/x", "region": "eu-west-1"},
        [
            b"\0\n" + XML,
            b"\2\n" + XML_ERROR,
            b"\5" + DATE + b"\n" + XML_ERROR,
            b"\0\n" + XML.replace(b"2026-01-01T01:00:00Z", b"1767229200"),
        ],
        [
            b"<!DOCTYPE a [<!ENTITY e 'eeeeeeeeeeeeeeee'>]>",
            b"&e;",
            b"<![CDATA[",
            b"<Expiration>",
            b"<Code>",
            b"<Message>",
            b"<ErrorResponse",
        ],
    ),
    "azure": (
        {"type": "azure", "tenantId": "72f988bf-86f1-41af-91ab-2d7cd011db47", "clientId": "72f988bf-86f1-41af-91ab-2d7cd011db48"},
        [
            b'\0\n{"access_token": "a", "expires_in": 3600, "token_type": "Bearer"}',
            b'\2\n{"error": "invalid_client", "error_codes": [700213], "error_description": "AADSTS700213: no. Trace ID: x"}',
            b'\x05120\n{"error": "temporarily_unavailable"}',
        ],
        [b'"expires_in":', b'"expires_on":', b'"error_codes":', b"AADSTS7000219:", b"Current time: ", b'"access_token":'],
    ),
    "gcp": (
        {"type": "gcp", "workloadIdentityProvider": "projects/1/locations/global/workloadIdentityPools/pool/providers/prov"},
        [
            b'\0\n{"access_token": "a", "expires_in": 3600, "token_type": "Bearer"}',
            b'\0\n{"accessToken": "a", "expireTime": "2026-01-01T01:00:00Z"}',
            b'\2\n{"error": "invalid_grant", "error_description": "The audience is wrong"}',
            b'\4\n{"error": {"status": "PERMISSION_DENIED", "message": "no", "details": [{"reason": "SERVICE_DISABLED"}]}}',
        ],
        [b'"expires_in":', b'"expireTime":', b'"details":', b'"reason":', b'"status":', b"9999-12-31T23:59:59Z"],
    ),
    "alibaba": (
        {
            "type": "alibaba",
            "roleArn": "acs:ram::1234567890123456:role/x",
            "oidcProviderArn": "acs:ram::1234567890123456:oidc-provider/i",
        },
        [
            b'\0\n{"Credentials": {"AccessKeyId": "a", "AccessKeySecret": "s", "SecurityToken": "t", "Expiration": "2026-01-01T01:00Z"}}',
            b'\2\n{"Code": "AuthenticationFail.OIDCToken.Expired", "Message": "no"}',
            b"\3\n<Error><Code>InvalidAction</Code><Message>no</Message></Error>",
        ],
        [b'"Expiration":', b'"Code":', b"<Error>", b"<Code>", b"</Code>", b"9999-12-31T23:59:59-23:59", b"0001-01-01T00:00:00+23:59"],
    ),
}
TOKEN_REQUEST = b'{"status": {"token": "%s", "expirationTimestamp": "2026-01-01T01:00:00Z"}}' % TOKEN.reveal().encode()
STATUS = (
    b'{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "User \\"a\\" cannot get", "details": {"kind": "serviceaccounts"}}'
)
OBJECT = (
    b'{"metadata": {"namespace": "demo", "name": "a", "uid": "u", "resourceVersion": "1",'
    b' "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/x"}}}'
)
WATCHED = [
    b'{"type": "ADDED", "object": ' + OBJECT + b"}",
    b'{"type": "ERROR", "object": ' + STATUS + b"}",
    b'{"type": "BOOKMARK", "object": {}}',
]
OBJECTS = [b'"annotations":', b'"deletionTimestamp":', b'"metadata":', b'"uid":', b'"ERROR"', b'"code":', b'"details":', *NUMBERS]
KUBECONFIG = b"""apiVersion: v1
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: YQ==, proxy-url: "http://127.0.0.1:2"}}]
users: [{name: a, user: {token: t, client-key-data: YQ==}}]
"""
CONFIGURATION = b"""control: {socket: ./agent.sock}
admin: {listen: ["127.0.0.1:0"]}
issuer: {url: "http://127.0.0.1:9482", listen: ["127.0.0.1:0"], state: ./issuer}
refresh: {at: 0.8, concurrency: 16, maxAge: 24h}
identities:
- name: a
  source: {type: issuer, subject: "system:serviceaccount:demo:a", lifetime: 1h}
  provider: {type: generic, audiences: [demo]}
  sinks: [{type: files, directory: ./identities/a, mode: "0640"}]
"""
YAML = [
    b"0x" + b"f" * 5000,
    b"59:59:59",
    b"&a [*a]",
    b"*a",
    b"!!python/object",
    b"? ",
    b"- {}\n" * 50,
    b"<<: *a",
    b"|\n",
    b"2026-01-01",
    b".inf",
]
PEM = b"-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n-----END PRIVATE KEY-----\n"
INDEX = (
    b'{"version": 1, "keys": [{"kid": "a", "publishedAt": "2026-01-01T00:00:00+00:00",'
    b' "signsFrom": "2026-01-01T00:00:00+00:00", "longestLifetime": 1}]}'
)
GRANT = (
    b'{"identity": "a", "digest": "d", "generation": 1, "token": {"iat": "2026-01-01T00:00:00Z", "exp": null},'
    b' "credential": {"iat": null, "exp": null}, "files": {"token": "00"}}'
)


@contextmanager
def parsers(folder: Path) -> Iterator[list[Parser]]:
    """All of them. `folder`: where those that read files read them."""
    loop = asyncio.new_event_loop()
    clock = FakeClock()
    session = _Answering()

    async def http() -> Any:
        return session

    resources, kube = Resources(http), KubeClients(clock, {})
    toolbox = Toolbox(clock=clock, random=Random(0), counters=Counters(), http=http, resources=resources, kube=kube)
    token = IdentityToken(value=TOKEN, issuer="https://i", subject="s", audiences=("a",), issued_at=START, expires_at=START, id="j")
    file, store = folder / "foreign", Store()
    sessions, collector = Sessions(), metrics.Collector(store, toolbox.counters, clock, _Reloads())
    control = ControlEndpoint(store, clock)
    source = _source(toolbox)

    def exchange(provider: Any, data: bytes) -> None:
        session.data = data
        loop.run_until_complete(provider.exchange(token))

    def request_token(data: bytes) -> None:
        source._clients.answer = data  # type: ignore[attr-defined]
        loop.run_until_complete(source.fetch(["a"]))

    def from_file(read: Callable[[], object], data: bytes) -> None:
        file.write_bytes(data)
        read()

    def claim(data: bytes) -> None:
        part = base64.urlsafe_b64encode(data).decode().rstrip("=")
        claims.read_token(f"e30.{part}.c2ln", whose="a", now=START)

    def steer(data: bytes) -> None:
        first, _, body = data.partition(b"\n")
        method, _, path = first.decode("latin-1").partition(" ")
        loop.run_until_complete(control.answer(_Request(method, path, body)))  # type: ignore[arg-type]

    made = [
        Parser("token", lambda data: claims.read_token(data.decode("latin-1"), whose="a", now=START), [TOKEN.reveal().encode()]),
        Parser(
            "claims",
            claim,
            [b'{"iss":"i","sub":"s","aud":["a"],"exp":1767229200,"iat":1767225600,"kubernetes.io":{"warnafter":1767229200}}'],
            words=[b'"exp":', b'"kubernetes.io":', b'"warnafter":', b'"serviceaccount":{"uid":', *NUMBERS],
        ),
        Parser(
            "Retry-After",
            lambda data: sanitize.seconds(data.decode("latin-1"), START),
            [DATE, b"120", b"Mon, 01 Jan 2026 00:00:00 +99999999999999"],
        ),
        Parser("foreign words", lambda data: sanitize.repeatable(data.decode(errors="replace"), [TOKEN]), [b"no", TOKEN.reveal().encode()]),
        *(
            Parser(
                cloud,
                partial(exchange, providers.build(convert(settings, providers.ProviderSettings), "a", toolbox)),
                seeds,
                words=[*words, *NUMBERS],
            )
            for cloud, (settings, seeds, words) in CLOUDS.items()
        ),
        Parser(
            "TokenRequest", request_token, [TOKEN_REQUEST], words=[b"9999-12-31T23:59:59-23:59", b"0001-01-01T00:00:00+23:59", *NUMBERS]
        ),
        Parser(
            "API server refusal",
            _refuse,
            [b"\4\n" + STATUS, b"\5" + DATE + b"\n" + STATUS, b"\1\n" + STATUS],
            words=[b'"details":', *NUMBERS],
        ),
        Parser("watch line", _watch, WATCHED, words=OBJECTS),
        Parser("list", _list, [b'{"metadata": {"resourceVersion": "1"}, "items": [' + OBJECT + b"]}"], words=OBJECTS),
        Parser("kubeconfig", partial(from_file, lambda: credentials.from_kubeconfig(file)), [KUBECONFIG], words=YAML, cpu=OFF_LOOP_SECONDS),
        Parser("configuration", partial(from_file, lambda: load(file, {})), [CONFIGURATION], words=[*YAML, *NUMBERS], cpu=OFF_LOOP_SECONDS),
        Parser("annotations", _annotate, [b"eks.amazonaws.com/role-arn=arn:aws:iam::123456789012:role/x"]),
        Parser("grant.json", manifest.parse, [GRANT], words=NUMBERS),
        Parser(
            "issuer index",
            index.decode,
            [INDEX, INDEX.replace(b'Lifetime": 1', b'Lifetime": ' + b"9" * 400)],
            (ValueError,),
            words=[b"9999-12-31T23:59:59-23:59", b"0001-01-01T00:00:00+23:59", *NUMBERS],
        ),
        Parser("issuer key", keys.parse, [PEM, keys.generate("ES256")[1]], (ValueError,)),
        Parser("session token", lambda data: sessions.end(data.decode("latin-1"), "a"), [sessions.open("a", 60, START).encode()]),
        Parser(
            "control request",
            steer,
            [b'POST /renew\n{"names": ["a"]}', b"GET /wait?timeout=0\n", b"GET /status\n"],
            words=[b'"all":', *NUMBERS],
        ),
        Parser(
            "Accept of a scrape",
            lambda data: metrics.expose(collector, data.decode("latin-1")),
            [b"application/openmetrics-text; version=1.0.0", b"text/plain;version=0.0.4"],
        ),
    ]
    try:
        yield made
    finally:
        loop.run_until_complete(resources.__aexit__())
        loop.close()


class _Reloads:
    successful = True
    succeeded_at = START


class _Request:
    """What the control endpoint reads of one."""

    def __init__(self, method: str, target: str, body: bytes) -> None:
        path, _, query = target.partition("?")
        self.method, self.path = method, path
        self.query = URL.build(path="/", query_string=query).query
        self._body = body

    async def read(self) -> bytes:
        return self._body


class _Kube:
    """Stands where the clients of API servers would."""

    pod = None
    answer = b""
    ca = ""
    host = "api"

    def client(self, _kubeconfig: object) -> "_Kube":
        return self

    async def ask(self, *_: object, **__: object) -> dict[str, Any]:
        try:
            found = json.loads(self.answer)
        except (ValueError, RecursionError):
            found = None
        return found if isinstance(found, dict) else {}


def _source(toolbox: Toolbox) -> KubernetesSource:
    settings = convert({"type": "kubernetes", "serviceAccount": {"namespace": "demo", "name": "a"}}, KubernetesSettings)
    return KubernetesSource(settings, "a", replace(toolbox, kube=_Kube()))  # type: ignore[arg-type]


def _refuse(data: bytes) -> None:
    response = _Response(data)
    raise_from = refused(response.status, response.headers, response._body)
    found = sort(raise_from, _QUESTION, Caller(server="api", token=TOKEN), whose="a", now=START)
    assert isinstance(found, RefreshError)


def _watch(data: bytes) -> None:
    if found := objects.changed(data):
        _follow(*found)


def _list(data: bytes) -> None:
    _, found = objects.listed(data) or ("", ())
    for one in found:
        _follow("listed", one)


def _follow(kind: str, found: dict[str, Any]) -> None:
    """As a follower reads an object."""
    if kind == "error":
        raise sort(from_status(found), _QUESTION, Caller(server="api", token=TOKEN), whose="a", now=START)
    account = followed(_IDENTITY)
    assert account
    if last_observed := sighted(found, account):
        effective(_IDENTITY, last_observed)


def _annotate(data: bytes) -> None:
    pairs = dict(line.partition("=")[::2] for line in data.decode(errors="replace").split("\n"))
    effective(_IDENTITY, ObservedServiceAccount("uid", pairs))


_QUESTION = Attempt(verb="get", resource="serviceaccounts", namespace="demo", name="a")
_IDENTITY: Identity = convert(
    {
        "name": "a",
        "source": {"type": "kubernetes", "serviceAccount": {"namespace": "demo", "name": "a"}},
        "provider": {"type": "aws", "region": "eu-west-1", "fromServiceAccount": True},
    },
    Identity,
)
