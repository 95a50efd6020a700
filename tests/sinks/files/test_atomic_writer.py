"""The mechanics by themselves, where no sink can bring them about."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from agent.sinks.files import atomic_writer, removal

LOOK = atomic_writer.FileAttributes(mode=0o640)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, atomic_writer.DIRECTORY_FLAGS)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "file"])
def test_a_file_is_never_written_over_what_is_there_already(root: int, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    match kind:
        case "link":
            (tmp_path / "token").symlink_to(victim)
        case "dangling link":
            (tmp_path / "token").symlink_to(tmp_path / "new")
        case "hard link":
            os.link(victim, tmp_path / "token")
        case "file":
            (tmp_path / "token").write_text("")
    with pytest.raises(FileExistsError):
        atomic_writer.create(root, "token", b"secret", LOOK, durable=False)
    assert victim.read_text() == "untouched"
    assert not (tmp_path / "new").exists()


def test_a_generation_that_could_not_be_staged_leaves_nothing(root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _content: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        atomic_writer.stage(root, "..2026_01_01_00_00_00.a", {"token": b"t"}, LOOK, now=NOW, durable=True)
    assert list(tmp_path.iterdir()) == []


def test_short_writes_are_continued(root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, content: write(fd, bytes(content)[:3]))
    atomic_writer.create(root, "token", b"0123456789", LOOK, durable=False)
    assert (tmp_path / "token").read_bytes() == b"0123456789"


@pytest.mark.parametrize("target", ["/etc", "../elsewhere", "..2026_01_01_00_00_00.a/x", "plain", "..data"])
def test_a_data_link_that_leads_anywhere_but_to_a_generation_is_not_believed(root: int, tmp_path: Path, target: str) -> None:
    (tmp_path / "..data").symlink_to(target)
    assert atomic_writer.live(root) is None


def test_generations_are_named_by_utc_wherever_the_clock_is(root: int) -> None:
    there = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    name = atomic_writer.generation_name(there, "ab12")
    assert name == "..2026_01_01_00_00_00.ab12"
    assert atomic_writer.GENERATION.fullmatch(name)


def test_removal_follows_no_link(root: int, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    inside = tmp_path / "..2026_01_01_00_00_00.a"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep" / "link").symlink_to(outside)
    (inside / "link").symlink_to(outside)
    removal.remove(root, inside.name)
    (tmp_path / "direct").symlink_to(outside)
    removal.remove(root, "direct")
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").exists()


def test_who_may_read_the_files_may_enter_the_directories_and_nobody_else_may_write() -> None:
    assert atomic_writer.FileAttributes(mode=0o666).directory_mode == 0o755
    assert atomic_writer.FileAttributes(mode=0o620).directory_mode == 0o700
    assert atomic_writer.FileAttributes(mode=0o604).directory_mode == 0o705
    assert atomic_writer.FileAttributes(mode=0o600, uid=os.geteuid()).directory_mode == 0o700
    assert atomic_writer.FileAttributes(mode=0o600, uid=os.geteuid() + 1).directory_mode == 0o705
