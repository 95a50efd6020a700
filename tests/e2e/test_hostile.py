"""A hostile process in the pod, and a crowd of honest ones, against a whole agent that serves every dialect."""

import asyncio
import re

import pytest

from tests.e2e.daemon import Daemon
from tests.e2e.everything import CLOUDS, Everything, everything
from tests.e2e.held import HeldAnswers, answered, connected
from tests.serving.endpoint import Reply, brought, reply

HOST = "Host: 127.0.0.1\r\n"
OWN, OTHER = "/aws/aws/credentials", "/aws/aws-other/credentials"
GOOGLES = "/computeMetadata/v1/instance/service-accounts/default/token"
JWT = re.compile(rb"eyJ[\w-]+\.eyJ[\w-]+\.")
CHUNKED = "Transfer-Encoding: chunked\r\n"


async def send(port: int, text: str | bytes, quiet: float = 0.3) -> bytes:
    """All that comes until the connection is closed, or quiet for so long."""
    return await brought(port, text if isinstance(text, bytes) else text.encode("latin-1"), quiet=quiet)


def statuses(found: bytes) -> list[int]:
    return [int(part[2:5]) for part in found.split(b"HTTP/1.")[1:] if part[2:5].isdigit()]


def get(target: str, headers: dict[str, str]) -> str:
    return "".join(
        [f"GET {target} HTTP/1.1\r\n{HOST}", *(f"{name}: {value}\r\n" for name, value in headers.items()), "Connection: close\r\n\r\n"]
    )


async def ask(one: Everything, dialect: str, suffix: str = "") -> Reply:
    """As its SDKs do, and for whole answers however long they take."""
    target, headers = one.ways(suffix)[dialect]
    return reply(await send(one.port, get(target, {**headers, **await session(one, dialect)}), 10.0))


async def session(one: Everything, dialect: str) -> dict[str, str]:
    """The header that presents a session token, where the dialect wants one."""
    header = {"imds": "X-aws-ec2-metadata-token", "ecs": "X-aliyun-ecs-metadata-token"}.get(dialect)
    if header is None:
        return {}
    opened = await send(one.port, f"PUT /latest/api/token HTTP/1.1\r\n{HOST}{header}-ttl-seconds: 60\r\nConnection: close\r\n\r\n", 10.0)
    return {header: reply(opened).body.decode()}


def tricks(own: str) -> list[str]:
    """Of somebody who may ask for `OWN` and would have `OTHER`."""
    a = f"Authorization: {own}\r\n"
    then = f"GET {OTHER} HTTP/1.1\r\n{HOST}{a}\r\n"
    whole = [
        f"GET {OTHER} HTTP/1.1\r\n{HOST}{a}\r\n",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}{CHUNKED}Content-Length: 5\r\n\r\n0\r\n\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}Content-Length: 5\r\n{CHUNKED}\r\n0\r\n\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}Content-Length: 3\r\nContent-Length: 0\r\n\r\nabc{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}Content-Length: 3\r\n\r\nabc{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}{CHUNKED}\r\n3;x=y\r\nabc\r\n0\r\n\r\n{then}",
        f"GET {OTHER} HTTP/1.1\r\n{HOST}{CHUNKED}\r\n0\r\n{a}\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}{CHUNKED}\r\n{'F' * 20}\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}Host: evil.example\r\n{a}\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\nHost : 127.0.0.1\r\n{a}\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}X: a\r\n b\r\n\r\n{then}",
        f"GET {OTHER} HTTP/1.1\r\n{HOST}Authorization:\r\n {own}\r\n\r\n{then}",
        f"GET {OWN}\x00{OTHER} HTTP/1.1\r\n{HOST}{a}\r\n{then}",
        f"GET {OTHER} HTTP/1.1\n{HOST.strip()}\n{a.strip()}\n\n",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}X: a\rHost: evil.example\r\n\r\n",
        f"GET http://127.0.0.1{OTHER} HTTP/1.1\r\n{HOST}{a}\r\n",
        f"GET http://evil.example{GOOGLES} HTTP/1.1\r\n{HOST}Metadata-Flavor: Google\r\n\r\n",
        f"GET http://metadata.google.internal{GOOGLES} HTTP/1.1\r\nHost: evil.example\r\nMetadata-Flavor: Google\r\n\r\n",
        f"CONNECT 127.0.0.1:80 HTTP/1.1\r\n{HOST}\r\n{then}",
        f"CONNECT {OTHER} HTTP/1.1\r\n{HOST}{a}\r\n{then}",
        f"TRACE {OTHER} HTTP/1.1\r\n{HOST}{a}\r\n{then}",
        f"OPTIONS * HTTP/1.1\r\n{HOST}{a}\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: eA==\r\n\r\n{then}",
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc{then}",
        f"GET {OWN} HTTP/1.0\r\n{HOST}{a}Connection: keep-alive\r\n\r\n{then}",
        f"HEAD {OTHER} HTTP/1.1\r\n{HOST}{a}\r\n{then}",
        f"GET {OTHER}\r\n\r\n{then}",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00" * 40,
        f"GET {OWN} HTTP/1.1\r\n{HOST}{a}" + "".join(f"X{number}: a\r\n" for number in range(300)) + f"\r\n{then}",
        f"POST {OWN} HTTP/1.1\r\n{HOST}{a}Content-Length: 1000000\r\n\r\n" + "a" * 1_000_000,
        (f"GET {OWN} HTTP/1.1\r\n{HOST}{a}\r\n" + then) * 500,
    ]
    paths = [
        "/%61ws/aws-other/credentials", "/aws/aws-other%2fcredentials", "/aws//aws-other/credentials", "/aws/aws/../aws-other/credentials",
        "/aws/aws/%2e%2e/aws-other/credentials", "//aws/aws-other/credentials", "/AWS/aws-other/credentials", "/aws/AWS-OTHER/credentials",
        "/aws/aws-other/credentials/", "/aws/aws/credentials/../../aws-other/credentials", "/aws/aws;/../aws-other/credentials",
        "\\aws\\aws-other\\credentials", "/aws/aws-other/credentials?Authorization=x", "/aws/aws-other/credentials#x", f"{OWN}?{OTHER}",
        f"{OTHER}?{OWN}", f"/alibaba/alibaba-other/{own}/credentials", "/alibaba/alibaba-other/../alibaba/x/credentials",
        "/azure/azure-other/token?api-version=2019-08-01&resource=https://vault.azure.net",
    ]  # fmt: skip
    hosts = [
        "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "[::1%25lo]", "127.0.0.1.", "127.1", "0x7f000001", "evil@127.0.0.1",
        "127.0.0.1@evil.example", "127.0.0.1:80:80", "169.254.169.254.evil.example", "metadata.google.internal..",
    ]  # fmt: skip
    identity = "/computeMetadata/v1/instance/service-accounts/default/identity"
    minted = [
        "audience=sts.amazonaws.com",
        "audience=sts.amazonaws.com&format=full",
        "audience=x&audience=sts.amazonaws.com",
        "audience=",
        "",
    ]
    return [
        *whole,
        *(f"GET {identity}?{query} HTTP/1.1\r\n{HOST}Metadata-Flavor: Google\r\n\r\n" for query in minted),
        *(f"GET {path} HTTP/1.1\r\n{HOST}{a}X-IDENTITY-HEADER: {own}\r\nMetadata: true\r\n\r\n" for path in paths),
        *(f"GET {GOOGLES} HTTP/1.1\r\nHost: {host}\r\nMetadata-Flavor: Google\r\n\r\n" for host in hosts),
    ]


async def test_no_trick_of_http_gets_what_the_authorization_is_not_for(daemon: Daemon) -> None:
    async with everything(daemon) as one:
        theirs: set[bytes] = set()
        for dialect in ("container", "appservice", "uri"):
            found = (await ask(one, dialect, "-other")).json
            theirs |= {
                str(found[name]).encode()
                for name in ("SecretAccessKey", "Token", "access_token", "AccessKeySecret", "SecurityToken")
                if name in found
            }
        assert len(theirs) == 5
        before = one.asked()
        own = one.authorizations["aws"]

        async def try_all(port: int) -> None:
            for trick in tricks(own):
                found = await send(port, trick, 0.2)
                assert not any(secret in found for secret in theirs), trick[:300]
                assert not JWT.search(found), "the token by which the agent itself is known, or one for whoever was named"
                assert not any(status >= 500 for status in statuses(found)), (trick[:300], found[:300])
                if "Host: evil" in trick or GOOGLES in trick:
                    assert not any(secret.encode() in found for secret in one.secrets), trick[:300]

        await asyncio.gather(*map(try_all, (one.port, *one.ports.values())))
        for dialect in one.ways():
            assert (await ask(one, dialect)).status == 200
        assert one.asked() == before, "nobody's cloud was asked for any of this"
        assert [line for line in daemon.log() if line["level"] in {"error", "critical"}] == []
        await asyncio.to_thread(daemon.stop)


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_herd_of_200_in_each_dialect_is_one_exchange(daemon: Daemon, cloud: str) -> None:
    """Both herds wait at once; the first asks for the cloud's other identity. All connections are open before a request is complete:
    the least patient clients wait for a second, in which the agent has nothing to do but to answer.
    """
    dialects = {"aws": ("container", "imds"), "gcp": ("gce",), "azure": ("appservice", "azure-imds"), "alibaba": ("uri", "ecs")}[cloud]
    held: list[HeldAnswers] = []

    def hold(one: Everything) -> None:
        held.extend(HeldAnswers(server) for server in (one.sts, one.gcp, one.entra, one.alibaba))
        for answers in held:
            answers.release(*(f"{other}{suffix}" for other in CLOUDS if other != cloud for suffix in ("", "-other")))

    async with everything(daemon, wait=False, first=hold) as one:
        suffixes = dict(zip(dialects, ("",) if len(dialects) == 1 else ("-other", ""), strict=True))
        lines: dict[str, bytes] = {}
        for dialect, suffix in suffixes.items():
            target, headers = one.ways(suffix)[dialect]
            lines[dialect] = get(target, {**headers, **await session(one, dialect)}).encode()
        before = {dialect: await answered(daemon, dialect) for dialect in dialects}
        herd = {dialect: [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(200)] for dialect in dialects}
        for dialect, line in lines.items():
            for _, writer in herd[dialect]:
                writer.write(line[:-2])
        await connected(daemon, set(), 200 * len(dialects))
        for dialect, line in lines.items():  # the least patient come last
            for _, writer in herd[dialect]:
                writer.write(line[-2:])
            await asyncio.sleep(0.1)  # nothing shows that the agent has the requests
        assert await answered(daemon, dialects[0]) == before[dialects[0]]
        for answers in held:
            answers.release(*(f"{cloud}{suffix}" for suffix in suffixes.values()))
        for dialect in dialects:
            found = await asyncio.gather(*(reader.read() for reader, _ in herd[dialect]))
            for _, writer in herd[dialect]:
                writer.close()
            assert {reply(each).status for each in found} == {200}, dialect
            assert (await answered(daemon, dialect))["200"] - before[dialect].get("200", 0) == len(found)
        granted = {
            "aws": sorted(session.role.rpartition("/")[2] for session in one.sts.sessions.values()),
            "gcp": sorted(session.principal.rpartition(":")[2] for session in one.gcp.sessions.values()),
            "azure": ["azure", "azure-other"][: len(one.entra.granted)],
            "alibaba": sorted(session.role.rpartition("/")[2] for session in one.alibaba.sessions.values()),
        }
        assert granted[cloud] == ([cloud] if cloud == "gcp" else [cloud, f"{cloud}-other"]), "one exchange each"
