"""A process that dies at any system call whatsoever leaves the old generation or the new one, and its successor tidies up."""

import os
from pathlib import Path

import pytest

from tests.sinks.files.grants_and_sinks import Bench, FakeCredential, contents, generations, machinery, make_grant

CALLS = ["mkdir", "open", "write", "fchmod", "fchown", "utime", "fsync", "symlink", "rename", "unlink", "rmdir"]


class Killed(BaseException):
    """As SIGKILL does, nothing is caught and nothing cleaned up: every later call fails as well."""


class Fuse:
    """Lets so many calls pass, then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        for name in CALLS:
            monkeypatch.setattr(os, name, self._fused(getattr(os, name), name))

    def _fused(self, call, name):
        def fused(*args, **named):
            creating = name != "open" or (len(args) > 1 and args[1] & os.O_CREAT)
            if self.left >= 0 and creating:
                if self.left == 0:
                    raise Killed(name)
                self.left -= 1
            return None if name == "fsync" else call(*args, **named)  # the machine goes on, and waiting for a disk costs time

        return fused


def check_reader(directory: Path, possible: set[str]) -> str:
    """A reader by `..data` sees a whole generation; one by path, where links were there before, too."""
    live = directory / "..data"
    token = (live / "token").read_text()
    assert token in possible
    assert (live / "credentialsFile").read_text().startswith(f"{token.rpartition('.')[2]}\n")
    assert (directory / "token").read_text() == token
    return token


def numbered(number: int):
    return make_grant(number, token="t", credential=FakeCredential(contents={"credentialsFile": f"{number}\n", "config": "{}"}))


@pytest.mark.parametrize("memory", [True, False])
async def test_killed_at_any_step_of_a_write(bench: Bench, directory: Path, monkeypatch: pytest.MonkeyPatch, *, memory: bool) -> None:
    monkeypatch.setattr("agent.sinks.files.managed_directory.memory_backed", lambda _path: memory)
    fuse = Fuse(monkeypatch)
    seen = set()
    for step in range(200):
        sink = bench.sink(directory)
        await sink.write(numbered(1))
        bench.clock.jump(1)
        await sink.write(numbered(2))
        bench.clock.jump(5)
        fuse.left = step
        try:
            sink._volume.write(*arguments(sink, numbered(3)))  # as the thread would
            done = True
        except Killed:
            done = False
        fuse.left = -1
        await sink.close()  # as the kernel does
        seen.add(check_reader(directory, {"t.app.2", "t.app.3"}))
        successor = bench.sink(directory)
        assert await successor.adopt()
        assert "..data_tmp" not in machinery(directory)
        assert "..link_tmp" not in machinery(directory)
        live = (directory / "..data").readlink().name
        newest = max(generations(directory), key=lambda name: (directory / name).stat().st_mtime_ns)
        assert newest == live, "an orphan was left"
        assert len(generations(directory)) <= 3
        bench.clock.jump(31)
        delivery = await successor.read()
        assert delivery
        assert machinery(directory) == [live, "..data"]
        await successor.withdraw()
        if done:
            assert step > 10
            break
    else:
        pytest.fail("the write never came to its end")
    assert seen == {"t.app.2", "t.app.3"}


async def test_killed_at_any_step_of_the_first_write(bench: Bench, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fuse = Fuse(monkeypatch)
    for step in range(200):
        sink = bench.sink(directory)
        fuse.left = step
        try:
            sink._volume.write(*arguments(sink, numbered(1)))
            done = True
        except Killed:
            done = False
        fuse.left = -1
        await sink.close()
        successor = bench.sink(directory)
        prior = await successor.adopt()
        if prior:
            check_reader(directory, {"t.app.1"})
        await successor.write(numbered(2))
        check_reader(directory, {"t.app.2"})
        assert set(contents(directory)) == {"token", "credentialsFile", "config", "grant.json"}
        await successor.withdraw()
        if directory.exists():  # killed between making the directory and saying so
            directory.rmdir()
        if done:
            break
    else:
        pytest.fail("the write never came to its end")


@pytest.mark.parametrize("memory", [True, False])
async def test_an_error_at_any_step_of_a_write_leaves_no_orphan_and_the_next_write_heals(
    bench: Bench, directory: Path, monkeypatch: pytest.MonkeyPatch, *, memory: bool
) -> None:
    monkeypatch.setattr("agent.sinks.files.managed_directory.memory_backed", lambda _path: memory)
    calls = Failing(monkeypatch)
    for step in range(200):
        sink = bench.sink(directory)
        await sink.write(numbered(1))
        bench.clock.jump(1)
        calls.left = step
        try:
            sink._volume.write(*arguments(sink, numbered(2)))
            done = True
        except OSError:
            done = False
        calls.left = -1
        token = check_reader(directory, {"t.app.1", "t.app.2"})
        assert len(generations(directory)) == (1 if token == "t.app.1" else 2)
        assert await sink.read()
        await sink.write(numbered(3))
        check_reader(directory, {"t.app.3"})
        await sink.withdraw()
        if done:
            break
    else:
        pytest.fail("the write never came to its end")


class Failing(Fuse):
    """One call says that the disk is full; the others work."""

    def _fused(self, call, name):
        def fused(*args, **named):
            writing = name in {"mkdir", "write", "symlink", "fsync", "rename"} or (
                name == "open" and len(args) > 1 and args[1] & os.O_CREAT
            )
            if writing and self.left >= 0:
                self.left -= 1
                if self.left == -1:
                    raise OSError(28, "No space left on device")
            return None if name == "fsync" else call(*args, **named)

        return fused


def arguments(sink, grant):
    from agent.sinks.files.manifest import describe
    from agent.sinks.files.ownership import resolve

    files = sink._render(grant)
    return files, describe(grant, "d1", files), resolve(mode=0o640, owner=None, group=None)
