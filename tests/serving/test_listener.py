"""Sockets: bound to what was asked for, never taken from who is alive, gone when left."""

import asyncio
import errno
import os
import socket
import stat
from contextlib import ExitStack

import aiohttp
import pytest
from aiohttp import web

from agent.errors import ConfigError
from agent.serving import capacity, connections
from agent.serving.listener import listening
from agent.settings import Address


async def hello(request):
    return web.Response(text="hello")


@pytest.fixture(autouse=True)
def short_paths(tmp_path, monkeypatch):
    """A socket's path has at most 107 bytes."""
    monkeypatch.chdir(tmp_path)


async def get(address):
    connector = aiohttp.UnixConnector(address.path) if address.path else aiohttp.TCPConnector()
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.get(f"http://{'agent' if address.path else address}/") as response:
            return await response.text()


async def test_port_0_becomes_a_port_and_every_address_answers():
    wanted = [Address("127.0.0.1", 0), Address("", 0, "a.sock")]
    async with listening(hello, wanted, "admin") as bound:
        assert [await get(address) for address in bound] == ["hello", "hello"]
        assert bound[0].port
    with pytest.raises(aiohttp.ClientConnectionError):
        await get(bound[0])
    assert os.listdir() == []


@pytest.mark.parametrize("mode", [0o600, 0o660])
async def test_a_socket_file_has_its_mode_whatever_the_umask(mode):
    before = os.umask(0)
    try:
        async with listening(hello, [Address("", 0, "deep/er/a.sock")], "control", socket_mode=mode):
            assert stat.S_IMODE(os.stat("deep/er/a.sock").st_mode) == mode
    finally:
        os.umask(before)


async def test_a_left_over_is_replaced_and_a_live_ones_socket_is_not():
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind("a.sock")
    async with listening(hello, [Address("", 0, "a.sock")], "control") as bound:
        with pytest.raises(ConfigError, match=r"another agent answers on a\.sock"):
            async with listening(hello, [Address("127.0.0.1", 0), Address("", 0, "a.sock")], "control"):
                pytest.fail("two agents on one socket")
        assert await get(bound[0]) == "hello", "the refused one took nothing away"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
async def test_a_left_over_of_another_user_is_named_with_its_uid(tmp_path):
    tmp_path.chmod(0o777)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind("a.sock")
    os.chmod("a.sock", 0o600)
    os.seteuid(65533)
    try:
        with pytest.raises(ConfigError) as refused:
            async with listening(hello, [Address("", 0, "a.sock")], "control"):
                pytest.fail("it was replaced")
    finally:
        os.seteuid(0)
    assert refused.value.message == "cannot use the socket a.sock: it belongs to uid 0, and this agent is uid 65533"
    assert refused.value.remedy == "remove it if no agent of that user runs, or set another control.socket"
    assert os.path.lexists("a.sock")


async def test_a_path_that_is_too_long_for_a_socket_is_said_to_be():
    with pytest.raises(ConfigError) as refused:
        async with listening(hello, [Address("", 0, f"{'x' * 120}.sock")], "control"):
            pytest.fail("it cannot be")
    assert refused.value.remedy == "set a shorter path"


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_what_is_no_socket_is_left_alone(kind):
    if kind == "folder":
        os.mkdir("a.sock")
    else:
        with open("file", "w") as file:
            file.write("mine")
        os.symlink("file", "a.sock") if kind == "link" else os.rename("file", "a.sock")
    with pytest.raises(ConfigError, match=r"a\.sock"):
        async with listening(hello, [Address("", 0, "a.sock")], "control"):
            pytest.fail("it was replaced")
    assert os.path.lexists("a.sock")


@pytest.mark.parametrize("form", ["127.0.0.1:{}", ":{}"])
async def test_an_address_in_use_is_said_with_its_setting(form):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address.parse(form.format(taken.getsockname()[1]))
        with pytest.raises(ConfigError) as refused:
            async with listening(hello, [address], "admin"):
                pytest.fail("taken twice")
    assert refused.value.message == f"cannot listen on {address} for admin: Address already in use"
    assert (
        refused.value.remedy
        == f"ss -ltnp 'sport = :{address.port}' names the program that listens there: stop it, or set another admin.listen"
    )


@pytest.mark.parametrize(("host", "width"), [("192.0.2.1", 32), ("2001:db8::1", 128)])
async def test_an_address_of_no_interface_is_said_with_how_it_is_added(host, width):
    with pytest.raises(ConfigError) as refused:
        async with listening(hello, [Address(host, 0)], "metadata"):
            pytest.fail("it is nobody's")
    assert refused.value.message.endswith("Cannot assign requested address")
    assert refused.value.remedy.startswith(f"ip address add {host}/{width} dev lo")
    assert refused.value.remedy.endswith("set another metadata.listen")
    with pytest.raises(ConfigError) as refused:
        async with listening(hello, [Address(host, 0)], "admin"):
            pytest.fail("nor is it here")
    assert refused.value.remedy == "correct the address: no interface of this machine has it, or set another admin.listen"


@pytest.mark.parametrize(
    ("error", "said", "remedy"),
    [
        (OSError("could not bind on any address out of [('169.254.169.254', 80)]"), "Cannot assign", "ip address add 169.254.169.254/32"),
        (OSError(errno.EACCES, "x"), "Permission denied", "a port below 1024 needs CAP_NET_BIND_SERVICE"),
        (OSError(errno.ENOBUFS, "x"), "No buffer space", "free it, or set another metadata.listen"),
    ],
)
async def test_what_the_system_refuses_is_said_with_what_to_do(monkeypatch, error, said, remedy):
    """The first is Python 3.13's, which has no number."""

    async def fail(*_):
        raise error

    monkeypatch.setattr(web.TCPSite, "start", fail)
    with pytest.raises(ConfigError) as refused:
        async with listening(hello, [Address("169.254.169.254", 80)], "metadata"):
            pytest.fail("it cannot be")
    assert said in refused.value.message
    assert remedy in refused.value.remedy


@pytest.mark.parametrize("path", ["x" * 200, "file/a.sock", "/proc/none/a.sock"])
async def test_a_path_that_cannot_be_is_refused_in_words(path):
    with open("file", "w"):
        pass
    with pytest.raises(ConfigError, match=r"cannot (use|listen)") as refused:
        async with listening(hello, [Address("", 0, path)], "control"):
            pytest.fail("it cannot be")
    assert "control" in str(refused.value) or "shorter" in str(refused.value)


async def ask(connection):
    reader, writer = connection
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return (await asyncio.wait_for(reader.readuntil(b"hello"), 1))[:15]
    except (ConnectionError, asyncio.IncompleteReadError):
        return b""


async def hang_up(*connections):
    for _, writer in connections:
        writer.close()
        await asyncio.wait({asyncio.ensure_future(writer.wait_closed())})


async def test_beyond_the_cap_the_connection_served_first_is_closed_first(monkeypatch):
    """However often it has asked since: a flood of requests would otherwise keep its places."""
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 2)
    async with listening(hello, [Address("127.0.0.1", 0)], "metadata") as bound:
        one, two = [await asyncio.open_connection("127.0.0.1", bound[0].port) for _ in range(2)]
        assert await ask(one) == await ask(two) == await ask(one) == b"HTTP/1.1 200 OK"
        three = await asyncio.open_connection("127.0.0.1", bound[0].port)
        assert await ask(three) == await ask(two) == b"HTTP/1.1 200 OK"
        assert await ask(one) == b""
        assert await get(bound[0]) == "hello"
        await hang_up(one, two, three)


async def test_who_is_being_answered_gives_way_to_nobody(monkeypatch):
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 1)
    asked, known = asyncio.Event(), asyncio.Event()

    async def slow(_request):
        asked.set()
        await known.wait()
        return web.Response(text="hello")

    async with listening(slow, [Address("127.0.0.1", 0)], "metadata") as bound:
        one = await asyncio.open_connection("127.0.0.1", bound[0].port)
        answer = asyncio.ensure_future(ask(one))
        await asked.wait()
        two = await asyncio.open_connection("127.0.0.1", bound[0].port)
        assert await ask(two) == b""
        known.set()
        assert await answer == b"HTTP/1.1 200 OK"
        await hang_up(one, two)


async def test_half_requests_keep_no_probe_out_however_many_come_at_a_time(monkeypatch):
    monkeypatch.setattr(capacity, "MAX_CONNECTIONS", 20)
    async with listening(hello, [Address("127.0.0.1", 0)], "admin") as bound:
        held = [socket.create_connection(("127.0.0.1", bound[0].port)) for _ in range(100)]
        for one in held:
            one.send(b"GET / HTT")
        assert await get(bound[0]) == "hello"
        await asyncio.sleep(0.05)
        for one in held:
            one.setblocking(False)
        still = 0
        for one in held:
            try:
                one.recv(1)
            except BlockingIOError:
                still += 1
            except ConnectionError:
                pass
            one.close()
        assert still <= 20


@pytest.mark.parametrize("before", [0, 100, 180, 290])
async def test_request_is_read_beside_any_number_of_silent_connections(monkeypatch, before):
    """Nothing here yields to the loop, so all of them wait to be accepted; together they are more than twice what a listener has open."""
    monkeypatch.setattr(capacity.resource, "getrlimit", lambda _: (128 * capacity.FILES_SHARE, 4096))
    with ExitStack() as stack:

        def connect(address):
            return stack.enter_context(socket.create_connection(("127.0.0.1", address.port)))

        async with listening(hello, [Address("127.0.0.1", 0)], "metadata") as bound:
            for _ in range(before):
                connect(bound[0])
            asking = connect(bound[0])
            asking.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            for _ in range(300 - before):
                connect(bound[0])
            asking.setblocking(False)
            async with asyncio.timeout(60):
                found = await asyncio.get_running_loop().sock_recv(asking, 4096)
            assert found.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_listener_leaves_files_to_be_opened_by_others(monkeypatch):
    monkeypatch.setattr(capacity.resource, "getrlimit", lambda _: (2 * capacity.FILES_SHARE, 4096))
    async with listening(hello, [Address("127.0.0.1", 0)], "issuer") as bound:
        opened = [await asyncio.open_connection("127.0.0.1", bound[0].port) for _ in range(3)]
        assert await asyncio.wait_for(opened[0][0].read(), 1) == b"", "two is its share"
        await hang_up(*opened)


HEADERS = b"".join(b"X%d: %s\r\n" % (number, b"a" * 8000) for number in range(100))


async def test_no_connection_makes_the_agent_remember_more_than_it_needs_to_hear():
    async with listening(hello, [Address("127.0.0.1", 0)], "admin") as bound:
        reader, writer = await asyncio.open_connection("127.0.0.1", bound[0].port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
        for _ in range(2):  # never ends
            writer.write(HEADERS[:8000] + b"\r\n")
            await asyncio.sleep(0.02)
        assert (await asyncio.wait_for(reader.read(), 1)).startswith(b"HTTP/1.1 413 Content Too Large\r\n")
        writer.close()
        await writer.wait_closed()
        assert await get(bound[0]) == "hello"


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nX: a"]
)
async def test_idle_connection_is_closed_even_if_single_bytes_arrive(monkeypatch, said):
    monkeypatch.setattr(connections, "KEEPALIVE_SECONDS", 0.2)
    async with listening(hello, [Address("127.0.0.1", 0)], "metadata") as bound:
        reader, writer = await asyncio.open_connection("127.0.0.1", bound[0].port)
        writer.write(said)
        heard = asyncio.ensure_future(reader.read())
        async with asyncio.timeout(60):
            while not heard.done():
                writer.write(b"a" if said.endswith(b"a") else b"")
                await asyncio.wait({heard}, timeout=0.05)
        await hang_up((reader, writer))
    assert heard.exception() or heard.result().endswith(b"hello" if b"Host" in said else b"")


async def test_one_connection_may_ask_for_ever_little_by_little():
    async with listening(hello, [Address("127.0.0.1", 0)], "admin") as bound:
        reader, writer = await asyncio.open_connection("127.0.0.1", bound[0].port)
        for _ in range(10):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" + HEADERS[:8000] + b"\r\n\r\n")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        await writer.wait_closed()


async def test_the_control_socket_hears_out_who_names_many():
    async def measure(request):
        return web.Response(text=str(len(await request.read())))

    async with listening(measure, [Address("", 0, "a.sock")], "control") as bound:
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(bound[0].path)) as session:
            async with session.post("http://agent/", data=b"a" * 500_000) as response:
                assert await response.text() == "500000"
