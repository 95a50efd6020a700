"""Scenarios that need a mount namespace or other users, each run as `python -m …mounted_volume_scenarios NAME` under `unshare -m`.

Everything happens on a file system in memory at /mnt that only this process sees. Effective uids are taken and given
back with the saved one, so that a scenario can play the agent, the workload and root in turn.
"""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import agent.sinks.files.sink  # all of it while root can still read where it lies
from agent.errors import Rejected, Unavailable
from tests.fakes import FakeClock
from tests.sinks.files.grants_and_sinks import Bench, FakeCredential, contents, generations, machinery, make_grant

assert agent.sinks.files

ROOT = Path("/mnt")
AGENT = 65532


def mount(options: str = "size=1m,mode=0755", *, at: Path = ROOT) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(at)], check=True)


@contextmanager
def acting_as(uid: int, gid: int, *groups: int) -> Iterator[None]:
    before = os.getgroups()
    os.setgroups(groups)
    os.setresgid(gid, gid, 0)
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(before)


def can_read(path: Path, uid: int, *groups: int) -> bool:
    done = subprocess.run(["cat", str(path)], user=uid, group=uid, extra_groups=groups, capture_output=True, check=False)
    return done.returncode == 0 and done.stdout != b""


async def full(bench: Bench) -> None:
    """A disk that is full, by others' doing."""
    mount("size=64k")
    sink = bench.sink(ROOT / "app")
    await sink.write(make_grant(1))
    blocker = ROOT / "blocker"
    with pytest.raises(OSError, match="No space"):
        blocker.write_bytes(bytes(65536))
    for _ in range(2):
        with pytest.raises(Unavailable, match="ENOSPC") as caught:
            await sink.write(make_grant(2))
        assert "app" in caught.value.message
        assert caught.value.remedy
        assert len(generations(ROOT / "app")) == 1
        assert machinery(ROOT / "app")[1:] == ["..data"]
        delivery = await sink.read()
        assert delivery
        assert delivery.generation == 1
    blocker.unlink()
    await sink.write(make_grant(2))
    assert contents(ROOT / "app")["token"].endswith("app.2")


async def full_of_its_own(bench: Bench) -> None:
    """A disk too small for what the grace keeps: it says so, and goes on when the grace has passed."""
    mount("size=64k")
    sink = bench.sink(ROOT / "app")
    big = FakeCredential(contents={"config": "x" * 12000})
    await sink.write(make_grant(1, credential=big))
    with pytest.raises(Unavailable, match="ENOSPC"):
        await asyncio.gather(*(sink.write(make_grant(number, credential=big)) for number in range(2, 9)))
    bench.clock.jump(31)
    await sink.write(make_grant(9, credential=big))
    assert contents(ROOT / "app")["token"].endswith("app.9")


async def read_only(bench: Bench) -> None:
    """The volume is mounted read-only: reading goes on, writing says what to change, and heals."""
    mount()
    sink = bench.sink(ROOT / "app")
    await sink.write(make_grant(1))
    held = await sink.read()
    await sink.close()  # a directory that is held keeps nothing open for writing, but be sure
    subprocess.run(["mount", "-o", "remount,ro", str(ROOT)], check=True)
    with pytest.raises(Rejected, match="EROFS") as caught:
        await sink.write(make_grant(2))
    assert "writable" in caught.value.remedy
    found = await sink.read()
    assert found
    assert held
    assert found.token_expires_at == held.token_expires_at
    with pytest.raises(Rejected, match="EROFS"):
        await bench.sink(ROOT / "new").write(make_grant(1))
    subprocess.run(["mount", "-o", "remount,rw", str(ROOT)], check=True)
    await sink.write(make_grant(2))
    assert contents(ROOT / "app")["token"].endswith("app.2")


async def not_permitted(bench: Bench) -> None:
    """A parent that the agent may not write to."""
    mount()
    with acting_as(AGENT, AGENT):
        sink = bench.sink(ROOT / "app")
        with pytest.raises(Rejected, match="EACCES") as caught:
            await sink.write(make_grant())
        assert "/mnt/app" in caught.value.message
        assert "fsGroup" in caught.value.remedy
        assert await sink.read() is None
    ROOT.chmod(0o777)
    with acting_as(AGENT, AGENT):
        await sink.write(make_grant())
        await sink.close()
    directory = ROOT / "app"
    directory.chmod(0o550)
    with acting_as(AGENT, AGENT):  # its own directory is mended at once
        await sink.write(make_grant(2))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o750
    other = ROOT / "other"
    other.mkdir(0o700)
    os.chown(other, 1000, 1000)
    with acting_as(AGENT, AGENT), pytest.raises(Rejected, match="belongs to uid 1000") as caught:
        await bench.sink(other).write(make_grant())  # not "make the parent writable": it is
    assert "chown" in caught.value.remedy


async def passable(bench: Bench) -> None:
    """A directory on the way that the agent may pass and not list."""
    mount("mode=0711")
    (ROOT / "agents").mkdir()
    os.chown(ROOT / "agents", AGENT, AGENT)
    with acting_as(AGENT, AGENT):
        await bench.sink(ROOT / "agents" / "new" / "app").write(make_grant())
        assert contents(ROOT / "agents" / "new" / "app")["token"].endswith("app.1")


async def owners(bench: Bench) -> None:
    """Owners and groups that the agent may give, and may not."""
    mount("mode=0777")
    with acting_as(AGENT, AGENT, 4242):
        for settings, reason in [
            ({"owner": 1000}, "CAP_CHOWN"),
            ({"group": 4343}, "not one of the agent's"),
            ({"group": "nobody-has-it"}, "no group"),
        ]:
            with pytest.raises(Rejected, match=reason):
                await bench.sink(ROOT / "app", **settings).write(make_grant())
        assert not (ROOT / "app").exists()
        sink = bench.sink(ROOT / "app", group=4242, owner=AGENT)
        await sink.write(make_grant())
        token = ROOT / "app" / "token"
        assert (token.stat().st_uid, token.stat().st_gid) == (AGENT, 4242)
        token.resolve().chmod(0o000)  # not readable for the agent itself, which has no capability to read it all the same
        assert await sink.read()
        assert stat.S_IMODE(token.stat().st_mode) == 0o640
        os.chown(token, -1, AGENT)
        assert await sink.read()
        assert token.stat().st_gid == 4242


async def readers(bench: Bench) -> None:
    """Uid 1000 reads exactly when section 6 of the contract says so."""
    mount("mode=0755")
    for name, setgid in [("plain", False), ("fsgroup", True)]:
        parent = ROOT / name
        parent.mkdir()
        os.chown(parent, 0, 4242)
        parent.chmod(0o2777 if setgid else 0o777)
        with acting_as(AGENT, AGENT, 4242):
            await bench.sink(parent / "default").write(make_grant())
            await bench.sink(parent / "given", group=4242).write(make_grant())
            from agent.settings import FileMode

            await bench.sink(parent / "open", mode=FileMode.parse("0644")).write(make_grant())
            await bench.sink(parent / "own", mode=FileMode.parse("0600")).write(make_grant())
        expected = {"default": setgid, "given": True, "open": True, "own": False}
        for place, readable in expected.items():
            for file in ("token", "credentialsFile", "grant.json", "..data/token"):
                path = parent / place / file
                assert can_read(path, 1000, 4242) == readable, (path, "in the group")
                assert can_read(path, 1000) == (place == "open"), (path, "not in the group")
                assert can_read(path, AGENT), path
    given = ROOT / "owner"
    await bench.sink(given, owner=1000, mode=FileMode.parse("0600")).write(make_grant())
    assert can_read(given / "token", 1000)
    assert not can_read(given / "token", 1001)


async def hostile_neighbour(bench: Bench) -> None:
    """The directory is a volume that everybody may write to, and somebody does."""
    mount("mode=0777")
    with acting_as(AGENT, AGENT):
        sink = bench.sink(ROOT)
        await sink.write(make_grant(1))
        assert await sink.read()
    with acting_as(1000, 1000):
        planted = ROOT / "..2030_01_01_00_00_00.abc"
        planted.mkdir()
        for file in (ROOT / "..data").iterdir() if os.access(ROOT / "..data", os.X_OK) else []:
            (planted / file.name).write_text("")
        (planted / "token").write_text("planted")
        (ROOT / "mine").symlink_to(planted)
        (ROOT / "mine").rename(ROOT / "..data")
        (ROOT / "..data_tmp").mkdir()
        (ROOT / "..data_tmp" / "x").write_text("")
        (ROOT / "token").unlink()
        (ROOT / "token").symlink_to("/etc/passwd")
    (ROOT / "..data_tmp" / "x").unlink()
    with acting_as(AGENT, AGENT):
        with capture_logs() as logs:
            assert await sink.read() is None
            await sink.write(make_grant(2))
            await sink.write(make_grant(3))
        [kept] = [entry for entry in logs if entry["event"] == "leftover.kept"]
        assert (kept["identity"], kept["sink"]) == ("app", sink.name)
        assert contents(ROOT)["token"].endswith("app.3")
        delivery = await sink.read()
        assert delivery
        assert delivery.generation == 3
        await sink.close()
        with capture_logs() as logs:
            assert await bench.sink(ROOT).adopt() is None
        assert "belongs to uid 0" in logs[-1]["reason"]


async def strangers_setgid(bench: Bench) -> None:
    """A stranger makes the parent beforehand, with his own group and setgid, so that the files would be his group's to read."""
    mount("mode=0777")
    with acting_as(1000, 1000):
        (ROOT / "x").mkdir()
        (ROOT / "x").chmod(0o2777)
    with acting_as(AGENT, AGENT):
        for path in (ROOT / "x" / "app", ROOT / "x" / "y" / "app"):
            with pytest.raises(Rejected, match=r"app: .* would get group 1000"):
                await bench.sink(path).write(make_grant())
        assert list((ROOT / "x").iterdir()) == []


async def swapped_by_another_uid(bench: Bench) -> None:
    """Another uid swaps two identity directories in an emptyDir."""
    mount("mode=0777")
    one, two = ROOT / "one", ROOT / "two"
    with acting_as(AGENT, AGENT):
        first, second = bench.sink(one, identity="one"), bench.sink(two, identity="two")
        await first.write(make_grant(identity="one"))
        await second.write(make_grant(identity="two"))
    with acting_as(1000, 1000):
        one.rename(ROOT / "x")
        two.rename(one)
        (ROOT / "x").rename(two)
    with acting_as(AGENT, AGENT):
        with capture_logs() as logs:
            for sink, name in ((first, "one"), (second, "two")):
                assert await sink.read() is None
                await sink.write(make_grant(2, identity=name))
        assert [entry["event"] for entry in logs] == ["directory.replaced", "directory.replaced"]
        assert contents(one)["token"].endswith("one.2")
        assert contents(two)["token"].endswith("two.2")


async def single_file_mount(bench: Bench) -> None:
    """A single file mounted where a link must be."""
    mount()
    directory = ROOT / "app"
    directory.mkdir()
    (directory / "token").write_text("")
    (ROOT / "source").write_text("mounted")
    subprocess.run(["mount", "--bind", str(ROOT / "source"), str(directory / "token")], check=True)
    sink = bench.sink(directory)
    with pytest.raises(Rejected, match="single file is mounted") as caught:
        await sink.write(make_grant())
    assert "subPath" in caught.value.remedy
    assert machinery(directory) == []
    assert (ROOT / "source").read_text() == "mounted"
    subprocess.run(["umount", str(directory / "token")], check=True)
    await sink.write(make_grant())
    subprocess.run(
        ["mount", "--bind", str(ROOT / "source"), str(directory / "token")], check=True
    )  # follows the link: the file in the generation
    await sink.write(make_grant(2))
    assert contents(directory)["token"].endswith("app.2")
    with pytest.raises(Rejected, match="no directory"):
        await bench.sink(ROOT / "source").write(make_grant())


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        full, full_of_its_own, read_only, not_permitted, passable, owners, readers,
        hostile_neighbour, strangers_setgid, swapped_by_another_uid, single_file_mount,
    )
}  # fmt: skip


async def main(name: str) -> None:
    bench = Bench(FakeClock())
    try:
        await SCENARIOS[name](bench)
    finally:
        for sink in bench.sinks:
            await sink.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
