"""The metadata endpoint, listening, with what tests need to steer it: a store to fill, and raw requests to send."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from agent.clock import Clock, WallClock
from agent.counters import Counters
from agent.model import Credential, Grant, Key, Secret
from agent.providers.aws.credentials import Keys, SessionCredential
from agent.record import Profile
from agent.schedule import Policy
from agent.serving.listener import listening
from agent.serving.metadata import MetadataEndpoint
from agent.settings import Address
from agent.store import Store

NAME = "s3-reader"
PATH = f"/aws/{NAME}/credentials"
AUTHORIZATION = "authorization-of-the-s3-reader"
CANARIES = ("ASIACANARY", "canary-secret-access-key", "canary-session-token")
"""In each credential: none of it may be in any answer but a 200."""


@dataclass(frozen=True)
class Reply:
    """What came back, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    raw: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Endpoint:
    """Up while its context is entered."""

    def __init__(self, store: Store, clock: Clock, counters: Counters, server: MetadataEndpoint, bound: Sequence[Address]) -> None:
        self.store = store
        self.clock = clock
        self.counters = counters
        self.server = server
        self.bound = bound
        self.port = bound[0].port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def enrol(
        self,
        name: str = NAME,
        *,
        authorization: str | None = AUTHORIZATION,
        margin: float = 1200.0,
        served: bool = True,
        dialects: tuple[str, ...] = ("container",),
        **more: Any,
    ) -> None:
        """Takes up an identity that holds nothing yet. `more` is the profile's."""
        self.store.enrol(
            Profile(
                name=name,
                digest="d",
                source="file",
                provider="aws",
                sinks=(),
                dialects=dialects if served else (),
                authorization=Secret(authorization) if authorization else None,
                credential_policy=Policy(jitter=0.0, margin=margin),
                **more,
            )
        )

    def grant(self, name: str = NAME, *, lifetime: float = 3600.0, age: float = 0.0, tail: str = "") -> SessionCredential:
        """What a keeper would have brought so many seconds ago."""
        credential = a_session(self.clock.now() - timedelta(seconds=age), lifetime, tail)
        self.hold(credential, name)
        return credential

    def hold(self, credential: Credential, name: str = NAME, variant: str = "") -> None:
        """As above, of whatever cloud."""
        self.store.granted(Grant(key=Key(name, variant), digest="d", token=None, credential=credential))

    async def ask(self, path: str = PATH, *, method: str = "GET", authorization: str | None = AUTHORIZATION, **headers: str) -> Reply:
        """As an SDK asks, on a connection that could be used again; `X_Forwarded_For="…"` is a header."""
        named = {"Host": f"127.0.0.1:{self.port}", **({"Authorization": authorization} if authorization is not None else {})}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with closing(writer):
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
            async with asyncio.timeout(60):
                return await framed(reader, bodyless=method == "HEAD")

    async def send(self, raw: bytes, *, host: str = "127.0.0.1", quiet: float = 5.0) -> Reply:
        """These bytes, and what they bring until the connection is closed, or quiet for so many seconds."""
        return reply(await brought(self.port, raw, host=host, quiet=quiet))


async def brought(port: int, raw: bytes, *, host: str = "127.0.0.1", quiet: float = 5.0) -> bytes:
    """All that comes until the connection is closed, or quiet for so long."""
    reader, writer = await asyncio.open_connection(host, port)
    found = b""
    with closing(writer):
        try:
            writer.write(raw)
            while True:
                async with asyncio.timeout(quiet):
                    part = await reader.read(65536)
                if not part:
                    break
                found += part
        except (ConnectionError, TimeoutError):
            pass
    return found


async def framed(reader: asyncio.StreamReader, *, bodyless: bool = False) -> Reply:
    """The next answer on a connection, as long as it says it is; status 0 where the connection ends before."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = 0 if bodyless else int(reply(head).headers["content-length"])
        return reply(head + await reader.readexactly(length))
    except (ConnectionError, asyncio.IncompleteReadError):
        return reply(b"")


def reply(raw: bytes) -> Reply:
    """The first answer in it; status 0 where there is none."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Reply(int(first.split(" ")[1]) if first.startswith("HTTP/1") else 0, headers, body, raw)


def a_session(issued: datetime, lifetime: float = 3600.0, tail: str = "") -> SessionCredential:
    """With keys that no answer but a 200 may show."""
    key, secret, token = CANARIES
    keys = Keys(access_key_id=f"{key}{tail}", secret_access_key=Secret(f"{secret}{tail}"), session_token=Secret(f"{token}{tail}"))
    nowhere: Any = SimpleNamespace(files=lambda _: {})
    return SessionCredential(
        keys=keys,
        issued_at=issued,
        expires_at=issued + timedelta(seconds=lifetime),
        role_arn="arn:aws:iam::123456789012:role/s3-reader",
        region="eu-west-1",
        token_file=nowhere,
    )


def now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def endpoint(
    store: Store | None = None, clock: Clock | None = None, counters: Counters | None = None, *addresses: str, patience: float = 0.05
) -> AsyncIterator[Endpoint]:
    """Up while entered. `patience`: seconds that a request waits for the first credential."""
    store, clock, counters = store or Store(), clock or WallClock(), counters or Counters()
    listen = [Address.parse(address) for address in addresses or ("127.0.0.1:0",)]
    server = MetadataEndpoint(store, clock, counters, listen)
    for dialect in server._dialects.values():
        dialect.timeout = patience
    async with listening(server.answer, listen, "metadata") as bound:
        yield Endpoint(store, clock, counters, server, bound)
