"""The lock that only the agent's own user can open."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.sinks.files import lock, removal


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, removal.DIRECTORY_FLAGS)
    yield fd
    os.close(fd)


@pytest.fixture
def first(root: int) -> Iterator[lock.Lock]:
    first = lock.Lock()
    first.take(root)
    yield first
    first.release()


def test_a_second_writer_is_refused_until_the_first_releases(first: lock.Lock, root: int, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / lock.NAME).stat().st_mode) == 0o600
    second = lock.Lock()
    with pytest.raises(BlockingIOError):
        second.take(root)
    first.release()
    second.take(root)
    assert second.held(root)
    assert not first.held(root)
    second.release()


@pytest.mark.parametrize("kind", ["readable", "link", "dangling", "hard link", "directory", "fifo"])
def test_a_file_that_others_may_have_opened_is_replaced(root: int, tmp_path: Path, kind: str) -> None:
    path, victim = tmp_path / lock.NAME, tmp_path / "victim"
    victim.write_text("untouched")
    victim.chmod(0o600)
    match kind:
        case "readable":
            path.write_text("")
            path.chmod(0o640)
        case "link":
            path.symlink_to("victim")
        case "dangling":
            path.symlink_to("nowhere")
        case "hard link":
            os.link(victim, path)
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
    taken = lock.Lock()
    taken.take(root)
    assert taken.held(root)
    assert sorted(found.name for found in tmp_path.iterdir()) == [lock.NAME, "victim"]
    assert victim.read_text() == "untouched"
    taken.release()


def test_a_removed_file_is_noticed_and_taken_again(first: lock.Lock, root: int, tmp_path: Path) -> None:
    (tmp_path / lock.NAME).unlink()
    assert not first.held(root)
    first.take(root)
    assert first.held(root)


def test_a_file_that_is_replaced_while_it_is_locked_is_not_believed(root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def slow(fd: int, how: int) -> None:
        flock(fd, how)
        (tmp_path / lock.NAME).unlink()

    monkeypatch.setattr(fcntl, "flock", slow)
    with pytest.raises(PermissionError, match="keeps replacing"):
        lock.Lock().take(root)


def test_a_process_of_this_user_that_locks_the_directory_is_an_agent(root: int) -> None:
    assert not lock.locked_by_an_agent(root)
    fcntl.flock(root, fcntl.LOCK_EX)
    assert lock.locked_by_an_agent(root)


def test_a_volume_without_locks_is_used_and_reported(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks") as caught:
        lock.Lock().take(root)
    assert caught.value.errno in lock.UNLOCKABLE
