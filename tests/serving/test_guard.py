"""Who may not ask, on the wire: with every trick, no answer but a 200 holds a byte of a credential."""

import asyncio
import select
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.model import Secret
from agent.refusals import Refusal
from agent.serving import capacity
from agent.serving.guard import FORWARDED, HOSTS, Guard, is_authorized
from agent.settings import Address
from tests.serving.endpoint import AUTHORIZATION, CANARIES, NAME, PATH, Endpoint, Reply, endpoint, reply

OTHER = "authorization-of-another-identity"


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint() as running:
        running.enrol()
        running.grant()
        running.enrol("other", authorization=OTHER)
        running.grant("other")
        yield running


def refused(found: Reply, *status: int) -> None:
    """With one of these, and with nothing that is worth having."""
    assert found.status in status, found.raw
    assert not any(canary.encode() in found.raw for canary in CANARIES)


async def test_what_an_sdk_sends_is_let_through(one: Endpoint) -> None:
    assert (await one.ask()).status == 200


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "",
        " ",
        "wrong",
        OTHER,
        f"Bearer {AUTHORIZATION}",
        f"{AUTHORIZATION}x",
        AUTHORIZATION[:-1],
        AUTHORIZATION.upper(),
        f"{AUTHORIZATION},{AUTHORIZATION}",
        f"{AUTHORIZATION} {AUTHORIZATION}",
        f"\xe9{AUTHORIZATION[1:]}",
        "None",
    ],
)
async def test_an_authorization_that_is_not_exactly_this_identitys_is_refused(one: Endpoint, wrong: str | None) -> None:
    refused(await one.ask(authorization=wrong), 401)


async def test_another_identitys_authorization_opens_that_identity_only(one: Endpoint) -> None:
    refused(await one.ask(authorization=OTHER), 401)
    refused(await one.ask("/aws/other/credentials"), 401)
    assert (await one.ask("/aws/other/credentials", authorization=OTHER)).status == 200


async def test_two_authorizations_are_refused_even_where_one_or_both_are_right(one: Endpoint) -> None:
    for first, second in ((AUTHORIZATION, AUTHORIZATION), (AUTHORIZATION, "wrong"), ("wrong", AUTHORIZATION)):
        raw = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {first}\r\nAuthorization: {second}\r\nConnection: close\r\n\r\n"
        refused(await one.send(raw.encode()), 400, 401)


def test_an_authorization_is_compared_whole_whatever_it_holds() -> None:
    from aiohttp.test_utils import make_mocked_request

    for sent, kept, expected in (("a" * 32, "a" * 32, True), ("a" * 31, "a" * 32, False), ("Secret(…)", "Secret(…)", True), ("", "", True)):
        request = make_mocked_request("GET", "/", headers={"Authorization": sent})
        assert is_authorized(request, Secret(kept)) is expected
    assert not is_authorized(make_mocked_request("GET", "/"), Secret(""))


PROXIES = ("X-Forwarded-For", "FORWARDED", "X-Envoy-External-Address", "x-envoy-internal", "X-ENVOY-ATTEMPT-COUNT", "CF-Connecting-IP")


@pytest.mark.parametrize("name", [*sorted(FORWARDED), *PROXIES])
@pytest.mark.parametrize("value", ["127.0.0.1", "for=127.0.0.1", ""])
async def test_a_forwarded_request_is_refused_whatever_the_header_says(one: Endpoint, name: str, value: str) -> None:
    refused(await one.ask(**{str(name): value}), 403)


async def test_headers_of_sdks_are_not_taken_for_a_proxys(one: Endpoint) -> None:
    names = ("X-aws-ec2-metadata-token", "Amz-Sdk-Request", "X-IDENTITY-HEADER", "X-Envoy", "Viability", "CF-Worker", "x-" * 100)
    for _ in range(2):
        assert (await one.ask(**dict.fromkeys(names, "x"))).status == 200


FOREIGN = [
    "evil.example",
    "evil.example:9481",
    "127.0.0.1.evil.example",
    "127.0.0.1.evil.example:80",
    "x127.0.0.1",
    "127.0.0.2",
    "10.0.0.1",
    "user@127.0.0.1",
    "user:pass@127.0.0.1",
    "127.0.0.1@evil.example",
    "127.0.0.1:80@evil.example",
    "127.0.0.1:80:80",
    "127.0.0.1:port",
    "127.0.0.1:-1",
    "127.0.0.1, evil.example",
    "127.0.0.1 evil.example",
    "127.0.0.1/",
    "127.0.0.1#",
    "127.0.0.1?",
    "127.0.0.1\\",
    "2130706433",
    "0x7f.1",
    "127.1",
    "0177.0.0.1",
    "0.0.0.0",
    "[::]",
    "[::ffff:127.0.0.1]",
    "::1",
    "[::1",
    "::1]",
    "[::1]x",
    "[::1]:80:80",
    "[[::1]]",
    "localhost.evil.example",
    "localhost..",
    "metadata.google.internal..",
    "",
    " ",
    ":",
    ":9481",
    "%31%32%37.0.0.1",
    "127.0.0.\xb9",
]


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_host_that_nobody_asks_for_by_that_name_is_refused(one: Endpoint, host: str) -> None:
    refused(await one.ask(Host=host), 400, 403)


OURS = [
    *sorted(HOSTS),
    "127.0.0.1:9481",
    "127.0.0.1:1",
    "LOCALHOST",
    "LocalHost:80",
    "[::1]:9481",
    "Metadata.Google.Internal.",
    "metadata.google.internal.:80",
    "[FD00:EC2::23]",
    "127.0.0.1:",
]


@pytest.mark.parametrize("host", OURS)
async def test_hosts_of_real_clients_pass_in_any_case_and_with_any_port(one: Endpoint, host: str) -> None:
    assert (await one.ask(Host=host)).status == 200
    assert (await one.ask(Host=host)).status == 200, "remembered"


async def test_a_request_without_a_host_or_with_two_is_refused(one: Endpoint) -> None:
    rest = f"Authorization: {AUTHORIZATION}\r\nConnection: close\r\n\r\n"
    refused(await one.send(f"GET {PATH} HTTP/1.0\r\n{rest}".encode()), 400, 403)
    refused(await one.send(f"GET {PATH} HTTP/1.1\r\n{rest}".encode()), 400, 403)
    for hosts in (
        "Host: 127.0.0.1\r\nHost: evil.example\r\n",
        "Host: evil.example\r\nHost: 127.0.0.1\r\n",
        "Host: 127.0.0.1\r\nhost: 127.0.0.1\r\n",
    ):
        refused(await one.send(f"GET {PATH} HTTP/1.1\r\n{hosts}{rest}".encode()), 400, 403)


async def test_http_1_0_with_a_host_is_answered(one: Endpoint) -> None:
    found = await one.send(f"GET {PATH} HTTP/1.0\r\nHost: localhost\r\nAuthorization: {AUTHORIZATION}\r\n\r\n".encode())
    assert found.status == 200


TRICKS = [
    "/aws/s3-reader/credentials/",
    "//aws/s3-reader/credentials",
    "/aws//s3-reader/credentials",
    "/aws/s3-reader//credentials",
    "/aws/s3-reader",
    "/aws/s3-reader/",
    "/aws/s3-reader/Credentials",
    "/AWS/s3-reader/credentials",
    "/aws/S3-READER/credentials",
    "/aws/s3%2dreader/credentials",
    "/aws/s3-reader%2fcredentials",
    "/aws/s3-reader/credentials%00",
    "/aws/s3-reader/credential%73",
    "/aws/other/../s3-reader/credentials",
    "/aws/other/%2e%2e/s3-reader/credentials",
    "/aws/./s3-reader/credentials",
    "/aws/s3-reader/./credentials",
    "/aws/s3-reader/credentials/..",
    "/aws/s3-reader/credentials;x",
    "/aws/s3-reader/credentials%3f",
    "/aws/s3-reader/credentials.json",
    "/aws/s3-reader\\credentials",
    "/gce/s3-reader/credentials",
    "/",
    "/aws",
    "/credentials",
    "/aws/*/credentials",
    "/aws/s3-reade/credentials",
    "/aws/s3-readers/credentials",
    "/latest/meta-data/iam/security-credentials/s3-reader",
    "/v1/credentials",
    "/metrics",
    "/healthz",
    "*",
    "aws/s3-reader/credentials",
    "http://127.0.0.1/aws/s3-reader/credentials",
    "http://evil.example/aws/s3-reader/credentials",
    "https://x@y:1/aws/s3-reader/credentials",
    "/aws/" + "a" * 4000 + "/credentials",
    "/aws/s3-reader/" + "../" * 500 + "credentials",
]


@pytest.mark.parametrize("path", TRICKS, ids=lambda path: path[:60])
async def test_a_path_is_taken_as_it_is_sent_and_only_the_right_one_is_right(one: Endpoint, path: str) -> None:
    for authorization in (AUTHORIZATION, OTHER, None):
        refused(await one.ask(path, authorization=authorization), 400, 404)


async def test_a_query_or_a_fragment_changes_nothing(one: Endpoint) -> None:
    assert (await one.ask(f"{PATH}?a=b&c=/aws/other/credentials")).status == 200
    refused(await one.ask(f"{PATH}?Authorization={AUTHORIZATION}", authorization=None), 401)
    refused(await one.ask(f"/aws/other/credentials?x={PATH}"), 401)


async def test_what_is_too_large_is_refused_and_closes_the_connection(one: Endpoint) -> None:
    refused(await one.ask("/aws/" + "a" * 20000 + "/credentials"), 413)
    refused(await one.ask(X_Large="a" * 20000), 413)
    refused(await one.ask(**{f"X-{number}": "a" for number in range(500)}), 400)
    refused(await one.ask(authorization="a" * 8000), 401)
    head = f"Host: 127.0.0.1\r\nAuthorization: wrong\r\nContent-Length: {10**9}\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    writer.write(f"GET {PATH} HTTP/1.1\r\n{head}".encode() + b"a" * 65536)
    refused(reply(await reader.readuntil(b"\r\n\r\n")), 401, 413)  # as the body came with the head or behind it
    writer.close()
    await asyncio.wait({asyncio.ensure_future(writer.wait_closed())})


async def test_connections_with_half_a_request_keep_no_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 3)  # read when the listener opens
    async with endpoint() as one:
        one.enrol()
        one.grant()
        await _ask_beside_half_requests(one)


async def _ask_beside_half_requests(one: Endpoint) -> None:
    held = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(6)]
    for _, writer in held:
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode())
        await writer.drain()
    for _ in range(3):
        assert (await one.ask()).status == 200
    closed = [asyncio.ensure_future(reader.read()) for reader, _ in held]
    done, pending = await asyncio.wait(closed, timeout=0.5)
    for task in pending:
        task.cancel()
    assert len(done) >= 3, "the limit closed connections"
    for _, writer in held:
        writer.close()
        await asyncio.wait({asyncio.ensure_future(writer.wait_closed())})


class Wire:
    """As much of a request as the guard looks at, from any peer."""

    def __init__(self, peer: object, host: str = "127.0.0.1") -> None:
        from multidict import CIMultiDict

        self.headers = CIMultiDict({"Host": host})
        self.transport = type("T", (), {"get_extra_info": staticmethod(lambda _: peer)})() if peer != "gone" else None


@pytest.mark.parametrize(
    ("peer", "listen", "near"),
    [
        (("127.0.0.1", 1), "127.0.0.1:0", True),
        (("127.9.9.9", 1), "127.0.0.1:0", True),
        (("::1", 1, 0, 0), "[::1]:0", True),
        (("::ffff:127.0.0.1", 1, 0, 0), ":0", True),
        ("", "unix:/s", True),
        (("10.0.0.7", 1), "127.0.0.1:0", False),
        (("::ffff:10.0.0.7", 1, 0, 0), ":0", False),
        (("fe80::1%eth0", 1, 0, 2), ":0", False),
        (("169.254.169.254", 1), "169.254.169.254:0", True),  # itself, through its own address
        (("169.254.169.253", 1), "169.254.169.254:0", False),
        (("nonsense", 1), "127.0.0.1:0", False),
        (None, "127.0.0.1:0", False),
        ("gone", "127.0.0.1:0", False),
    ],
)
def test_only_this_machine_may_ask(peer: object, listen: str, near: bool) -> None:
    wire: Any = Wire(peer)
    assert Guard([Address.parse(listen)]).objection(wire) == (None if near else (Refusal.NOT_LOCAL, "only this machine may ask"))


def test_the_listeners_own_address_is_a_name_it_is_asked_by() -> None:
    wire: Any = Wire(("127.0.0.1", 1), "10.1.2.3:9481")
    assert Guard([Address.parse("127.0.0.1:0")]).objection(wire)
    assert not Guard([Address.parse("10.1.2.3:0")]).objection(wire)
    six: Any = Wire(("::1", 1), "[fd00::5]:9481")
    assert not Guard([Address.parse("[fd00::5]:9481")]).objection(six)


async def test_it_answers_on_ipv6_and_on_a_socket_file(tmp_path: Path) -> None:
    async with endpoint(None, None, None, "127.0.0.1:0", f"unix:{tmp_path}/s") as one:
        one.enrol()
        one.grant()
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {AUTHORIZATION}\r\nConnection: close\r\n\r\n".encode())
        assert reply(await reader.read()).status == 200
        writer.close()
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    async with endpoint(None, None, None, "[::1]:0") as six:
        six.enrol()
        six.grant()
        raw = f"GET {PATH} HTTP/1.1\r\nHost: [::1]:{six.port}\r\nAuthorization: {AUTHORIZATION}\r\nConnection: close\r\n\r\n"
        assert (await six.send(raw.encode(), host="::1")).status == 200


FROM_ELSEWHERE = """
import asyncio, subprocess
from tests.serving.endpoint import endpoint, AUTHORIZATION, PATH, reply

async def main():
    async with endpoint(None, None, None, ":9481") as one:
        one.enrol(); one.grant()
        raw = f"GET {PATH} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nAuthorization: {AUTHORIZATION}\\r\\nConnection: close\\r\\n\\r\\n".encode()
        for source in ("127.0.0.1", "10.11.12.13"):
            reader, writer = await asyncio.open_connection("10.11.12.13", 9481, local_addr=(source, 0))
            writer.write(raw)
            print(source, reply(await reader.read()).status)
            writer.close()

for command in ("ip link set lo up", "ip address add 10.11.12.13/32 dev lo"):
    subprocess.run(command.split(), check=True)
asyncio.run(main())
"""


def test_remote_peer_is_refused_on_a_listener_of_all_addresses() -> None:
    """In a network namespace of its own, where it may give the machine a second address."""
    done = subprocess.run(["unshare", "-rn", sys.executable, "-c", FROM_ELSEWHERE], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode and ("unshare" in done.stderr or "ip" in done.stderr.splitlines()[-1]):
        pytest.skip(f"no network namespaces here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["127.0.0.1 200", "10.11.12.13 403"]


def test_the_names_are_those_of_the_clouds_and_of_this_machine() -> None:
    assert NAME not in HOSTS
    assert {"127.0.0.1", "localhost", "[::1]", "169.254.169.254", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"} <= HOSTS


async def test_herd_during_a_busy_loop_is_not_delayed_by_a_second(one: Endpoint) -> None:
    """Nothing here yields to the loop, so nobody accepts: beyond the backlog TCP would try again after 1 s."""
    crowd = [socket.socket() for _ in range(400)]
    for each in crowd:
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", one.port))
    connected = select.select([], crowd, [], 0)[1]
    for each in crowd:
        each.close()
    assert len(connected) == 400
