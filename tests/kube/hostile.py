"""An API server that turns hostile while `attack` lies in its folder: `python -m tests.kube.hostile FOLDER`.

Each namespace is one way to attack; before, all are well: one ServiceAccount, a quiet watch, tokens that nobody signed.
It is a process of its own, so what it sends costs no time of a test's.
"""

import asyncio
import json
import sys
import time
from base64 import urlsafe_b64encode
from contextlib import suppress
from itertools import count
from pathlib import Path

from tests.servers.tls import certificate

ABSURD = "Mon, 01 Jan 2026 00:00:00 +99999999999999"
KINDS = (
    "absurd-retry-after", "absurd-expiry", "long-message", "long-event", "endless-line", "endless-list", "blank-lines", "watch-ends",
    "watch-cut", "flapping-role", "flapping-50-a-second", "bad-annotation", "deleted-and-added", "strangers", "deep", "gone",
)  # fmt: skip
CHUNK = 256 * 1024
"""Bytes that are sent at a time."""


def account(namespace, name="app", role="arn:aws:iam::123456789012:role/x", uid="u", version=1):
    metadata = {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"kind": "ServiceAccount", "metadata": metadata | {"annotations": {"eks.amazonaws.com/role-arn": role}}}


def change(kind, found):
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


def status(code, message, reason="Failure"):
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


def token(namespace, expiry=None):
    now = int(time.time())
    claims = {"iss": "https://x", "sub": f"system:serviceaccount:{namespace}:app", "aud": ["a"], "iat": now, "exp": now + 3600}
    parts = [urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in ({"alg": "none"}, claims)]
    moment = expiry or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 3600))
    return {"status": {"token": ".".join([*parts, "c2ln"]), "expirationTimestamp": moment}}


WORDS = " ".join(f"word{number}" for number in range(900_000))[: 8 * 1024 * 1024]


class Exchange:
    def __init__(self, writer, kind):
        self.writer = writer
        self.kind = kind

    async def answer(self, found, code=200, headers=""):
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        await self.head(code, f"Content-Length: {len(body)}\r\n{headers}")
        await self.send(body)

    async def head(self, code=200, headers="Connection: close\r\n"):
        await self.send(f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\n{headers}\r\n".encode())

    async def send(self, data):
        if self.writer.is_closing():
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()
        await asyncio.sleep(0)  # the other attacks have a turn

    async def flood(self, lines):
        """All of them, as fast as they are taken."""
        await self.head()
        heap = bytearray()
        for line in lines:
            heap += line
            if len(heap) >= CHUNK:
                await self.send(bytes(heap))
                heap.clear()

    async def listed(self):
        await self.answer({"kind": "ServiceAccountList", "metadata": {"resourceVersion": "1"}, "items": [account(self.kind)]})

    async def attack(self, verb):
        kind, numbers = self.kind, count(2)
        match kind, verb:
            case "absurd-retry-after", _:
                await self.answer(status(503, "later"), 503, f"Retry-After: {ABSURD}\r\n")
            case "absurd-expiry", "token":
                await self.answer(token(kind, "9999-12-31T23:59:59-23:59"))
            case "long-message", _:
                await self.answer(status(500, WORDS), 500)
            case "gone", "watch":
                await self.answer(status(410, "too old", "Expired"), 410)
            case "endless-list", "list":
                await self.flood(b'{"x":"y"},' * 100 if number else b'{"items":[' for number in range(10**9))
            case "long-event", "watch":
                await self.flood([change("ERROR", status(500, WORDS))])
            case "endless-line", "watch":
                await self.flood(b"x" * 1000 for _ in numbers)
            case "blank-lines", "watch":
                await self.flood(b"\n" * 1000 for _ in numbers)
            case "watch-ends", "watch":
                await self.answer(b"")
            case "watch-cut", "watch":
                await self.head()
                self.writer.transport.abort()
            case "flapping-role", "watch":
                await self.flood(
                    change("MODIFIED", account(kind, role=f"arn:aws:iam::123456789012:role/r{one}", version=one)) for one in numbers
                )
            case "flapping-50-a-second", "watch":
                await self.head()
                for one in numbers:
                    await self.send(change("MODIFIED", account(kind, role=f"arn:aws:iam::123456789012:role/r{one}", version=one)))
                    await asyncio.sleep(0.02)
            case "bad-annotation", "watch":
                await self.flood(change("MODIFIED", account(kind, role=f"no role {one}", version=one)) for one in numbers)
            case "deleted-and-added", "watch":
                await self.flood(change("DELETED" if one % 2 else "ADDED", account(kind, uid=f"u{one}", version=one)) for one in numbers)
            case "strangers", "watch":
                await self.flood(change("ADDED", account(kind, name=f"other{one}", version=one)) for one in numbers)
            case "deep", "watch":
                await self.flood([b'{"type":"ADDED","object":' + b"[" * 1_000_000 + b"\n"])
            case _:
                return False
        return True

    async def calm(self, verb):
        if verb == "list":
            await self.listed()
        elif verb == "token":
            await self.answer(token(self.kind), 201)
        elif verb == "watch":
            await self.head()
            await asyncio.sleep(3600)
        else:
            await self.answer(status(404, "no such thing"), 404)


class Hostile:
    def __init__(self, folder):
        self.folder = folder
        self.watches = set()

    async def serve(self, reader, writer):
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split("\r\n")[0].split(" ")
                lengths = [line.split(":")[1] for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                await reader.readexactly(int(lengths[0]) if lengths else 0)
                path = target.partition("?")[0].split("/")
                verb = "token" if path[-1] == "token" else "watch" if "watch=true" in target else "list" if method == "GET" else "other"
                with (self.folder / "requests").open("a") as file:
                    file.write(f"{time.time():.3f} {path[4]} {verb}\n")
                exchange = Exchange(writer, path[4])
                if verb == "watch":
                    self.watches.add(writer)
                if not (await exchange.attack(verb) if (self.folder / "attack").exists() else False):
                    await exchange.calm(verb)
                if verb == "watch":
                    break
        self.watches.discard(writer)
        writer.close()

    async def run(self):
        context, _ = certificate(self.folder, "127.0.0.1")
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=context)
        (self.folder / "port.new").write_text(str(server.sockets[0].getsockname()[1]))
        (self.folder / "port.new").rename(self.folder / "port")
        while not (self.folder / "attack").exists():
            await asyncio.sleep(0.05)
        for writer in list(self.watches):  # who watches quietly begins anew
            writer.transport.abort()
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(Hostile(Path(sys.argv[1])).run())
