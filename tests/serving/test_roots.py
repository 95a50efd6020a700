"""Whose the well-known paths are: by port, by default; and a herd at one of them."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agent.serving.dialects.imds import Imds
from agent.serving.listener import listening
from agent.settings import Address
from tests.servers.cloud import aws_settings
from tests.serving.endpoint import CANARIES, NAME, Endpoint, endpoint, reply
from tests.serving.rotating_endpoint import rotating_endpoint

FACTS = aws_settings(roleArn="arn:aws:iam::123456789012:role/reader").facts()
LISTING = "/latest/meta-data/iam/security-credentials/"


async def ask(port: int, path: str, method: str = "GET", host: str = "127.0.0.1", **headers: str) -> tuple[int, bytes]:
    """At any port, in IMDS' way."""
    reader, writer = await asyncio.open_connection(host, port)
    named = {"Host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "Connection": "close", **headers}
    writer.write("\r\n".join([f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()), "", ""]).encode())
    found = reply(await reader.read())
    writer.close()
    return found.status, found.body


async def role(port: int, before: str = "", host: str = "127.0.0.1") -> tuple[int, bytes]:
    """What the role's credential says, or the first status that is not 200."""
    status, token = await ask(port, f"{before}/latest/api/token", "PUT", host, **{"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    if status != 200:
        return status, token
    return await ask(port, f"{before}{LISTING}reader", "GET", host, **{"X-aws-ec2-metadata-token": token.decode()})


async def test_a_port_of_its_own_answers_for_one_identity_and_for_nobody_else() -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(endpoint())
        for name in ("first", "second", "third"):
            one.enrol(name, dialects=("imds", "container"), default=name == "third", facts=FACTS)
            one.grant(name, tail=f"-of-the-{name}")
        handler = one.server.answering("second")
        port = (await stack.enter_async_context(listening(handler, [Address("127.0.0.1", 0)], "serve.port")))[0].port
        assert b"-of-the-second" in (await role(port))[1]
        assert b"-of-the-second" in (await role(port, "/aws/second/imds"))[1]
        assert b"-of-the-third" in (await role(one.port))[1], "the default, on the main listener"
        for name in ("first", "third"):
            status, body = await role(port, f"/aws/{name}/imds")
            assert (status, any(canary.encode() in body for canary in CANARIES)) == (404, False)
            assert (await ask(port, f"/aws/{name}/credentials", Authorization="authorization-of-the-s3-reader"))[0] == 404
        one.store.forget("second")
        assert (await role(port))[0] == 404, "it stays open, and answers for nobody"
        one.enrol("second", dialects=("container",), facts=FACTS)
        one.grant("second")
        assert (await role(port))[0] == 404, "not in this dialect any more"


async def test_ipv6_loopback_is_as_good() -> None:
    async with endpoint(None, None, None, "[::1]:0") as one:
        one.enrol(dialects=("imds",), default=True, facts=FACTS)
        one.grant()
        status, body = await role(one.port, host="::1")
        assert (status, CANARIES[0].encode() in body) == (200, True)


async def test_a_guard_at_the_port_is_the_same() -> None:
    async with endpoint() as one:
        one.enrol(dialects=("imds",), facts=FACTS)
        one.grant()
        async with listening(one.server.answering(NAME), [Address("127.0.0.1", 0)], "serve.port") as bound:
            for headers in ({"X-Forwarded-For": "10.0.0.1"}, {"Host": "rebound.example"}):
                more = {"X-aws-ec2-metadata-token-ttl-seconds": "60", **headers}
                assert (await ask(bound[0].port, "/latest/api/token", "PUT", **more))[0] == 403


@pytest.mark.parametrize("asked", [200])
async def test_a_herd_is_one_exchange(tmp_path: Path, asked: int) -> None:
    async with rotating_endpoint(tmp_path, dialects=("imds",), first=False) as one:
        served: Endpoint = one.endpoint
        one.cloud.sts.delay = 0.2
        for dialect in served.server._dialects.values():
            dialect.timeout = Imds.timeout * 5
        name = one.record.key.identity
        listing = f"/aws/{name}/imds"
        status, token = await ask(served.port, f"{listing}/latest/api/token", "PUT", **{"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        assert status == 200
        known = {"X-aws-ec2-metadata-token": token.decode()}
        _, found = await ask(served.port, listing + LISTING, **known)
        answers = await asyncio.gather(*(ask(served.port, f"{listing}{LISTING}{found.decode()}", **known) for _ in range(asked)))
        assert {status for status, _ in answers} == {200}
        assert len({body for _, body in answers}) == 1
        assert len(one.cloud.sts.sessions) == 1
