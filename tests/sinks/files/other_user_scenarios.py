"""Attacks by other users of the volume, each run as `python -m tests.sinks.files.other_user_scenarios NAME [DIRECTORY]` under `unshare -m`.

The volume is at /mnt: in memory, or DIRECTORY on a disk. `mounted_volume_scenarios.py` says how users are played.
"""

import asyncio
import os
import resource
import stat
import struct
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from agent.counters import Counters
from agent.errors import Rejected
from agent.model import Grant, Key, Secret
from agent.record import Profile
from agent.rotation.courier import Courier
from agent.schedule import Policy
from agent.sinks.files import acl, limits
from agent.sinks.files.sink import FilesSink
from agent.store import Store
from tests.fakes import FakeClock
from tests.processor import own_time
from tests.sinks.files.grants_and_sinks import Bench, contents, generations, make_grant
from tests.sinks.files.mounted_volume_scenarios import AGENT, ROOT, acting_as, can_read, mount

STRANGER, READER, GROUP = 1001, 1000, 2000
VIEW = Path("/mnt/view")
VOLUME = Path("/mnt/volume")


def volume(options: str = "mode=0755") -> None:
    """Mounts the volume at /mnt."""
    if len(sys.argv) > 2:
        subprocess.run(["mount", "--bind", sys.argv[2], str(ROOT)], check=True)
        ROOT.chmod(int(options.rpartition("=")[2], 8))
    else:
        mount(options)


def access_list(**permissions: int) -> bytes:
    """Return an ACL with an entry for the stranger. https://man7.org/linux/man-pages/man5/acl.5.html"""
    nobody = 0xFFFFFFFF
    entries = [
        (0x01, permissions.get("owner", 7), nobody),
        (0x02, permissions.get("stranger", 7), STRANGER),
        (0x04, 5, nobody),
        (0x10, permissions.get("mask", 7), nobody),
        (0x20, 0, nobody),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def everything(directory: Path) -> list[Path]:
    return [directory, *(path for path in directory.rglob("*") if not path.is_symlink())]


async def default_acl(bench: Bench) -> None:
    """A default ACL on the way: the files are the agent's to give, and nobody is let in by what the directory says."""
    volume("mode=02777")
    os.chown(ROOT, 0, GROUP)
    ROOT.chmod(0o2777)
    for name, owner in (("ids", 7), ("denies", 0)):
        planted = ROOT / name
        with acting_as(STRANGER, STRANGER):
            planted.mkdir()
            planted.chmod(0o777)
            os.setxattr(planted, acl.DEFAULT, access_list(owner=owner))
        for directory in (planted / "app", planted / "deep" / "app"):
            with acting_as(AGENT, AGENT, GROUP):
                sink = bench.sink(directory)
                with capture_logs() as logs:
                    await sink.retain("authorization", Secret("s3cret"))
                    for number in (1, 2):
                        await sink.write(make_grant(number))
                assert await sink.read()
            for file in ("token", "credentialsFile", "authorization"):
                assert can_read(directory / file, AGENT), file
                assert not can_read(directory / file, STRANGER), file
            for path in everything(planted)[1:]:
                assert not acl.present(path), path
            assert [entry["event"] for entry in logs].count("acl.removed") == (directory.parent == planted)


async def inherited_by_an_earlier_agent(bench: Bench) -> None:
    """What an agent before this one made under a default ACL is mended, and an authorization that was read is replaced."""
    volume()
    directory = ROOT / "app"
    directory.mkdir()
    os.chown(directory, AGENT, AGENT)
    with acting_as(AGENT, AGENT):
        sink = bench.sink(directory)
        await sink.retain("authorization", Secret("s3cret"))
        await sink.write(make_grant())
        await sink.close()
        for path in everything(directory):
            os.setxattr(path, acl.ACCESS, access_list(stranger=5, mask=5))
        os.setxattr(directory, acl.DEFAULT, access_list())
    assert can_read(directory / "token", STRANGER)
    with acting_as(AGENT, AGENT):
        again = bench.sink(directory)
        assert await again.recall("authorization") is None
        await again.retain("authorization", Secret("another"))
        assert await again.adopt()
        assert await again.read()
    assert [path for path in everything(directory) if path.name != "..lock" and acl.present(path)] == []
    assert contents(directory)["authorization"] == "another"
    for file in ("token", "authorization"):
        assert not can_read(directory / file, STRANGER)
        assert can_read(directory / file, AGENT)
    assert stat.S_IMODE((directory / "token").stat().st_mode) == 0o640
    assert len(generations(directory)) == 1


async def lock_from_a_read_only_mount(bench: Bench) -> None:
    """A reader locks the directory through a read-only mount, and stops nothing."""
    mount()
    for path in (VOLUME, VIEW):
        path.mkdir()
    mount("mode=02777", at=VOLUME)
    os.chown(VOLUME, 0, GROUP)
    VOLUME.chmod(0o2777)
    subprocess.run(["mount", "--bind", str(VOLUME), str(VIEW)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(VIEW)], check=True)
    directory = VOLUME / "app"
    with acting_as(AGENT, AGENT, GROUP):
        sink = bench.sink(directory)
        await sink.write(make_grant(1))
    with locker(VIEW / "app", READER, "--shared") as reader:  # waits for the lock
        with acting_as(AGENT, AGENT, GROUP):
            await sink.close()
            assert reader.stdout
            assert reader.stdout.readline() == "locked\n"
            with capture_logs() as logs:
                again = bench.sink(directory)
                await again.write(make_grant(2))
                assert await again.read()
            assert [entry["event"] for entry in logs] == ["lock.ignored"]
            with pytest.raises(Rejected, match="another agent or identity writes to"):
                await bench.sink(directory, identity="other").write(make_grant(identity="other"))
        reader.communicate()
    assert contents(directory)["token"].endswith("app.2")
    with locker(VIEW / "app" / "..lock", READER, "--shared") as refused:
        assert refused.communicate()[0] == ""
    assert refused.returncode == 66  # EX_NOINPUT
    await again.close()
    with locker(directory, AGENT, "--exclusive") as earlier:  # as an agent before this one does
        assert earlier.stdout
        assert earlier.stdout.readline() == "locked\n"
        with acting_as(AGENT, AGENT, GROUP), pytest.raises(Rejected, match="another agent or identity writes to"):
            await bench.sink(directory).write(make_grant(3))
        earlier.communicate()
    with acting_as(AGENT, AGENT, GROUP):
        await bench.sink(directory).write(make_grant(3))
    with locker(directory, AGENT, "--nonblock") as later:  # and is kept out
        assert later.communicate()[0] == ""


def locker(path: Path, uid: int, how: str) -> subprocess.Popen[str]:
    """Says `locked` once it has the lock, and keeps it until its input ends."""
    command, pipe = ["flock", how, str(path), "-c", "echo locked; cat"], subprocess.PIPE
    return subprocess.Popen(
        command, user=uid, group=uid, extra_groups=[GROUP], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


async def lock_replaced(bench: Bench) -> None:
    """Another user takes the lock's file away, or puts something in its place: one writer remains, and rotation goes on."""
    volume("mode=0777")
    with acting_as(AGENT, AGENT):
        sink = bench.sink(ROOT)
        await sink.write(make_grant(1))
    for number, kind in enumerate(("gone", "directory", "fifo", "file", "link"), start=2):
        with acting_as(STRANGER, STRANGER):
            (ROOT / "..lock").rename(ROOT / f"taken{number}")
            match kind:
                case "directory":
                    (ROOT / "..lock").mkdir()
                case "fifo":
                    os.mkfifo(ROOT / "..lock")
                case "file":
                    (ROOT / "..lock").write_text("")
                case "link":
                    (ROOT / "..lock").symlink_to("/etc/passwd")
        with acting_as(AGENT, AGENT):
            await sink.write(make_grant(number))
            assert await sink.read()
            assert stat.S_IMODE((ROOT / "..lock").lstat().st_mode) == 0o600
            assert (ROOT / "..lock").lstat().st_uid == AGENT
            with pytest.raises(Rejected, match="another agent"):
                await bench.sink(ROOT).write(make_grant())
    (ROOT / "..lock").unlink()
    ROOT.chmod(0o1777)
    with acting_as(STRANGER, STRANGER):
        (ROOT / "..lock").write_text("")
    with acting_as(AGENT, AGENT):
        with capture_logs() as logs:
            for _ in range(3):
                await sink.read()
            await sink.write(make_grant(9))
        assert [entry["event"] for entry in logs] == ["lock.refused"]
        assert contents(ROOT)["token"].endswith("app.9")


async def renamed_away(bench: Bench) -> None:
    """Another user renames the directory: what lies in it goes at the next look, not when it expires."""
    volume("mode=0777")
    with acting_as(AGENT, AGENT):
        sink = bench.sink(ROOT / "app")
        await sink.retain("authorization", Secret("s3cret"))
        await sink.write(make_grant(1))
    with acting_as(STRANGER, STRANGER):
        (ROOT / "app").rename(ROOT / "kept")
    with acting_as(AGENT, AGENT):
        assert await sink.read() is None
        assert list((ROOT / "kept").iterdir()) == []
        await sink.write(make_grant(2))
        assert contents(ROOT / "app")["authorization"] == "s3cret"
        await sink.withdraw_all()
    assert sorted(path.name for path in ROOT.rglob("*") if path.name != "lost+found") == ["kept"]


async def undeletable(bench: Bench) -> None:
    """What another user put there and the agent cannot remove keeps nothing of the agent's from being withdrawn."""
    volume("mode=0777")
    with acting_as(AGENT, AGENT):
        sink = bench.sink(ROOT)
        await sink.retain("authorization", Secret("s3cret"))
        for number in (1, 2):
            await sink.write(make_grant(number))
    forge(50)
    with acting_as(AGENT, AGENT):
        await sink.withdraw_all()
    assert [path for path in ROOT.iterdir() if path.lstat().st_uid == AGENT] == []


def forge(number: int) -> None:
    """Generations that look older than any, and that the agent cannot remove."""
    with acting_as(STRANGER, STRANGER):
        for count in range(number):
            planted = ROOT / f"..2020_01_01_00_00_00.{count:06x}"
            planted.mkdir(0o700)
            (planted / "x").mkdir()


async def forged_generations(bench: Bench) -> None:
    """Another user forges thousands of generations: bounded looks, in a thread, and one line in the log."""
    volume("size=1g,nr_inodes=400000,mode=0777")
    number = int(os.environ.get("FORGED", "5000"))
    with acting_as(AGENT, AGENT):
        sink = bench.sink(ROOT)
        await sink.write(make_grant(1))
    before = await rotations(sink, bench)
    forge(number)
    with capture_logs() as logs:
        after = await rotations(sink, bench)
        await sink.close()
        restarted = bench.sink(ROOT)
        after = max(after, await rotations(restarted, bench))
    with acting_as(AGENT, AGENT):
        await restarted.read()
    assert len([name for name in generations(ROOT) if not name.startswith("..2020")]) <= 2
    sys.stdout.write(f"{number} forged: late by {before * 1000:.1f} ms before, {after * 1000:.1f} ms with them; {len(logs)} log lines\n")
    assert [entry["event"] for entry in logs] == ["leftover.kept"] * len(logs)
    assert len(logs) <= 3
    assert logs[-1]["count"] >= min(number, limits.MAX_ENTRIES_LOOKED_AT) - 10
    if "FORGED" in os.environ:
        assert after - before < 0.05


async def rotations(sink: FilesSink, bench: Bench) -> float:
    """Return how many seconds another identity's reader is late, at most, while this one is rotated four times."""
    worst, done = 0.0, False

    async def rotate() -> None:
        nonlocal done
        for count in range(2, 6):
            await sink.write(make_grant(count))
            delivery = await sink.read()
            assert delivery
            assert delivery.generation == count
            bench.clock.jump(31)
        done = True

    with acting_as(AGENT, AGENT):
        rotating = asyncio.ensure_future(rotate())
        while not done and not rotating.done():
            began = own_time()
            await asyncio.sleep(0.001)  # real time: the loop itself is measured
            worst = max(worst, own_time() - began - 0.001)
        await rotating
    return worst


async def out_of_descriptors(_bench: Bench) -> None:
    """The process has no descriptor left: what was delivered counts as delivered, and the log stays short."""
    volume()
    bench = Bench(clock := FakeClock())
    sink = bench.sink(ROOT / "app")
    store, grant = Store(), make_grant(1)
    profile = Profile(
        name="app",
        digest=grant.digest,
        source="fake",
        provider="fake",
        sinks=(sink.name,),
        token_policy=Policy(),
        credential_policy=Policy(),
    )
    store.enrol(profile)
    granted = store.granted(grant)
    courier = Courier("app", sink, store=store, clock=clock, random=Random(1), counters=Counters())
    with capture_logs() as logs:
        carrying = asyncio.ensure_future(courier.carry())
        await until(lambda: sink_checked(store) is not None)
        before = contents(ROOT / "app")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        for count in range(20):
            await clock.advance(11)
            await until(
                lambda count=count: (found := store.record(Key("app")).sink_statuses[sink.name]).failure and found.failure.count > count
            )
            sink_status = store.record(Key("app")).sink_statuses[sink.name]
            assert sink_status.delivery
            assert sink_status.losses == 0
            assert "EMFILE" in sink_status.failure.message
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await clock.advance(11)
        await until(lambda: store.record(Key("app")).sink_statuses[sink.name].failure is None)
        carrying.cancel()
    assert granted.generation == store.record(Key("app")).sink_statuses[sink.name].generation
    assert contents(ROOT / "app") == before
    assert [entry["event"] for entry in logs] == ["grant.delivered", "delivery.failed", "delivery.recovered"]
    await sink.close()


def sink_checked(store: Store) -> Grant | None:
    record = store.record(Key("app"))
    return record.grant if record and record.sink_statuses else None


async def until(true) -> None:
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.002)  # real time: a thread has to come back
    raise AssertionError


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        default_acl, inherited_by_an_earlier_agent, lock_from_a_read_only_mount, lock_replaced, renamed_away, undeletable,
        forged_generations, out_of_descriptors,
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
