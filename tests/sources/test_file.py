"""Token files that somebody else renews, good and bad."""

import asyncio
import json
import os
import socket
import threading
from base64 import urlsafe_b64encode
from random import Random

import pytest

from agent.counters import Counters
from agent.errors import NotReady, Rejected, Unavailable
from agent.sources import file as module
from agent.sources.file import FileSettings, FileSource
from agent.toolbox import Toolbox
from tests.fakes import START, FakeClock, settle

NOW = int(START.timestamp())
CANARY = "canary-d83b"


def jwt(name="j", **claims):
    claims = {"iat": NOW, "exp": NOW + 3600, "aud": ["sts.example"], "jti": name} | claims
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "RS256"}, claims)) + ".c2ln"


async def no_http():
    raise AssertionError


class Place:
    """A token file and the source that reads it, as from memory unless told otherwise."""

    def __init__(self, folder, memory=True):
        self.path = folder / "token"
        self.clock = FakeClock()
        self.source = FileSource(
            FileSettings(path=str(self.path)), "demo", Toolbox(clock=self.clock, random=Random(1), counters=Counters(), http=no_http)
        )
        self.source._memory = memory

    async def fetch(self, *audiences):
        return await self.source.fetch(audiences)

    def swap(self, text):
        """As kubelet and every careful writer do."""
        new = self.path.with_name("new")
        new.write_text(text)
        new.rename(self.path)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize("memory", [True, None, False])
async def test_a_token_is_read_wherever_the_file_lies(tmp_path, memory):
    place = Place(tmp_path, memory)
    place.path.write_text(jwt("one") + "\n")
    assert (await place.fetch("sts.example")).id == "one"
    place.swap(jwt("two"))
    assert (await place.fetch("sts.example")).id == "two"
    assert isinstance(place.source._memory, bool) or memory is not None


async def test_building_the_source_touches_nothing(tmp_path):
    Place(tmp_path / "not" / "there")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        (None, NotReady, "there is no token file"),
        ("", NotReady, "is empty"),
        ("  \n", NotReady, "is empty"),
        (CANARY, Rejected, "not a JWT"),
        (f"{CANARY}.{CANARY}.{CANARY}", Rejected, "not a JWT"),
        (b"\xff\x00" + CANARY.encode(), Rejected, "is not a JWT"),
        (jwt(exp=NOW - 1, jti=CANARY), Rejected, "expired at 2025-12-31T23:59:59Z"),
        (jwt(exp=NOW), Rejected, "expired at"),
        (jwt(exp=None), Rejected, "has no expiry"),
        (jwt(aud="other"), Rejected, "is for other, not for sts.example"),
        (jwt(aud=None), Rejected, "is for nothing, not for sts.example"),
        (jwt(aud="sts.example.evil"), Rejected, "is for sts.example.evil"),
        (jwt(aud=["a" * 9] * 2000), Rejected, r"is for (?=.{400}, not for)(aaaaaaaaa, )*a+, not for sts.example"),
    ],
)
async def test_a_bad_file_is_refused_by_its_place_with_a_remedy_and_without_its_content(place, content, error, text):
    if isinstance(content, bytes):
        place.path.write_bytes(content)
    elif content is not None:
        place.path.write_text(content)
    with pytest.raises(error, match=text) as caught:
        await place.fetch("sts.example")
    assert "demo: " in caught.value.message
    assert str(place.path) in caught.value.message
    assert caught.value.remedy
    assert CANARY not in str(caught.value)
    assert CANARY not in repr(caught.value.__cause__)


async def test_a_gigabyte_is_refused_without_reading_it(place):
    with place.path.open("wb") as file:
        file.truncate(1 << 30)
    began = asyncio.get_running_loop().time()
    with pytest.raises(Rejected, match="is longer than 65536 bytes"):
        await place.fetch()
    assert asyncio.get_running_loop().time() - began < 0.5


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket", "dangling link", "loop"])
async def test_what_is_no_regular_file_is_refused_and_nobody_waits_for_it(place, kind, monkeypatch):
    if kind == "directory":
        place.path.mkdir()
    elif kind == "fifo":
        os.mkfifo(place.path)
    elif kind == "socket":
        monkeypatch.chdir(place.path.parent)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("token")
    elif kind == "loop":
        place.path.symlink_to(place.path)
    else:
        place.path.symlink_to("nowhere")
    with pytest.raises((NotReady, Rejected, Unavailable)) as caught:
        await place.fetch()
    assert str(place.path) in caught.value.message


async def test_a_file_that_may_not_be_read_says_who_would_have_to(place, monkeypatch):
    place.path.write_text(jwt())

    def forbidden(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.os, "open", forbidden)
    with pytest.raises(Rejected, match="permission denied") as caught:
        await place.fetch()
    assert f"uid {os.geteuid()}" in caught.value.remedy


async def test_a_path_that_cannot_be_looked_at_is_no_bug(tmp_path):
    place = Place(tmp_path / ("x" * 300), memory=None)
    with pytest.raises(Unavailable, match="File name too long"):
        await place.fetch()


async def test_any_of_the_audiences_is_enough_and_none_asked_for_takes_all(place):
    place.path.write_text(jwt(aud=["a", "b"]))
    assert await place.fetch("b", "c")
    assert await place.fetch()


async def test_a_change_is_told_within_ten_seconds_and_once(place):
    place.path.write_text(jwt("one"))
    await place.fetch()
    changed = asyncio.ensure_future(place.source.changed())
    await place.clock.advance(60)
    assert not changed.done()
    place.swap(jwt("two"))
    await place.clock.advance(10)
    assert changed.done()
    again = asyncio.ensure_future(place.source.changed())
    await place.clock.advance(60)
    assert not again.done(), "it was not read, but it was told"
    assert (await place.fetch()).id == "two"
    place.swap(jwt("six"))
    await place.clock.advance(10)
    assert again.done()


async def test_a_file_that_goes_is_no_change_and_one_that_comes_back_is(place):
    place.path.write_text(jwt("one"))
    await place.fetch()
    changed = asyncio.ensure_future(place.source.changed())
    place.path.unlink()
    await place.clock.advance(60)
    assert not changed.done()
    place.path.write_text(jwt("two"))
    await place.clock.advance(10)
    assert changed.done()


async def test_a_file_that_may_be_read_now_is_a_change(place):
    place.path.write_text(jwt("one"))
    await place.fetch()
    changed = asyncio.ensure_future(place.source.changed())
    place.path.chmod(0o640)
    await place.clock.advance(10)
    assert changed.done()


async def test_kubelets_swap_of_a_whole_directory_is_seen(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(jwt(name))
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "token").symlink_to("..data/token")
    place = Place(tmp_path)
    assert (await place.fetch()).id == "one"
    changed = asyncio.ensure_future(place.source.changed())
    (tmp_path / "..tmp").symlink_to("two")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    await place.clock.advance(10)
    assert changed.done()
    assert (await place.fetch()).id == "two"


async def test_a_disk_that_hangs_holds_up_neither_the_loop_nor_more_than_one_thread(tmp_path, monkeypatch):
    place = Place(tmp_path, None)
    place.path.write_text(jwt())
    answer = threading.Event()
    monkeypatch.setattr(module, "memory_backed", lambda _: not answer.wait(5))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await place.fetch()
    looking = asyncio.ensure_future(place.source.changed())
    for _ in range(5):
        with pytest.raises(Unavailable, match="does not answer"):
            await place.fetch()
        await place.clock.advance(10)
    assert sum(thread.name == "read demo" for thread in threading.enumerate()) == 1
    assert not looking.done()
    answer.set()
    async with asyncio.timeout(2):
        while place.source._busy:
            await asyncio.sleep(0.01)
    assert (await place.fetch()).id == "j"
    looking.cancel()
    await settle()
