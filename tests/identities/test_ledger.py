"""The ledger outlives the agent, forgets nothing that it can read, and believes nothing that it should not."""

import json
import os
import stat
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from agent.errors import ConfigError
from agent.identities.ledger import Delivered, Ledger
from agent.record import Revocation

PLACE = Delivered("app", "files", "/run/app")
REVOCATION = Revocation(at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), by="uid 0")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "agent.sock.ledger"


async def opened(path, **how):
    ledger = Ledger(path)
    await ledger.open(**how)
    return ledger


async def test_what_is_recorded_is_known_to_the_next_process(path):
    ledger = await opened(path)
    assert await ledger.record({PLACE})
    assert await ledger.revoke("app", REVOCATION)
    ledger.close()
    after = await opened(path)
    assert (after.delivered, after.revoked) == ({PLACE}, {"app": REVOCATION})
    assert await after.reinstate("app")
    after.close()
    assert (await opened(path)).revoked == {}


async def test_file_is_0600_at_every_moment_and_whatever_the_umask(path, monkeypatch):
    modes = []
    rename = os.rename

    def seen(*arguments, **named):
        modes.extend(stat.S_IMODE(file.lstat().st_mode) for file in path.parent.iterdir() if file.is_file())
        return rename(*arguments, **named)

    monkeypatch.setattr(os, "rename", seen)
    before = os.umask(0)
    try:
        ledger = await opened(path)
        modes.append(stat.S_IMODE(path.stat().st_mode))
        await ledger.record({PLACE})
    finally:
        os.umask(before)
    assert set(modes) | {stat.S_IMODE(path.stat().st_mode)} == {0o600}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[]",
        b'{"version": 2, "delivered": []}',
        b'{"version": 1, "delivered": [{"identity": 1}]}',
        b'{"version": 1, "revoked": {"app": {"at": "2026-01-01T00:00:00", "by": "x"}}}',
        b"[" * 100_000,
    ],
)
async def test_what_is_not_a_ledger_counts_as_empty_and_is_replaced(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with capture_logs() as logs:
        ledger = await opened(path)
    assert [line["event"] for line in logs] == (["ledger.not_read"] if content else [])
    assert (ledger.delivered, ledger.revoked) == (frozenset(), {})
    assert await ledger.record({PLACE})
    assert json.loads(path.read_text())["delivered"][0]["identity"] == "app"


@pytest.mark.parametrize("location", ["x\\u0000", "/x\\u0000", "relative", "", "/" + "x" * 5000, "/\\udcff"])
async def test_what_cannot_be_a_place_is_left_out(path, location):
    path.parent.mkdir()
    path.write_text(f'{{"version": 1, "delivered": [{{"identity": "app", "kind": "files", "location": "{location}"}}]}}')
    assert (await opened(path)).delivered == frozenset()


@pytest.mark.parametrize("how", ["link", "another uid's", "writable", "two names", "directory", "pipe"])
async def test_what_another_could_have_written_is_not_believed(path, how):
    path.parent.mkdir()
    forged = path.with_name("forged")
    forged.write_text(json.dumps({"version": 1, "delivered": [{"identity": "app", "kind": "files", "location": "/run/app"}]}))
    match how:
        case "link":
            path.symlink_to(forged)
        case "another uid's":
            if os.geteuid() != 0:
                pytest.skip("gives a file away")
            forged.rename(path)
            os.chown(path, 65534, -1)
        case "writable":
            forged.rename(path)
            path.chmod(0o622)
        case "two names":
            path.hardlink_to(forged)
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
    with capture_logs() as logs:
        ledger = await opened(path)
    assert "ledger.not_read" in [line["event"] for line in logs]
    assert ledger.delivered == frozenset()
    assert await ledger.record({PLACE}) == (how != "directory")


async def test_second_agent_is_told_and_changes_nothing(path):
    first = await opened(path)
    await first.record({PLACE})
    with pytest.raises(ConfigError, match=r"another agent keeps the ledger .*agent\.sock\.ledger"):
        await opened(path)
    await first.record({PLACE, Delivered("b", "files", "/run/b")})
    with pytest.raises(ConfigError):
        await opened(path)
    first.close()
    assert len((await opened(path)).delivered) == 2


async def test_once_reads_beside_a_running_agent_and_writes_nothing(path):
    first = await opened(path)
    await first.revoke("app", REVOCATION)
    once = await opened(path, keep=False)
    assert once.revoked == {"app": REVOCATION}
    assert not await once.record({PLACE})
    assert json.loads(path.read_text())["delivered"] == []


async def test_full_disk_is_said_once_and_recovered_from(path, monkeypatch):
    ledger = await opened(path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert not await ledger.record({PLACE})
        assert not await ledger.save()
    assert [line["event"] for line in logs] == ["ledger.not_written"]
    assert path.read_bytes() == b""
    with capture_logs() as logs:
        assert await ledger.save()
    assert [line["event"] for line in logs] == ["ledger.recovered"]


async def test_without_a_path_nothing_is_remembered():
    ledger = await opened(None)
    assert not await ledger.revoke("app", REVOCATION)
    assert ledger.revoked == {"app": REVOCATION}
