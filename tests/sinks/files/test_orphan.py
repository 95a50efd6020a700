"""A forged ledger names any directory: nothing goes that is not this identity's and the agent's own."""

import hashlib
import json
import os
from datetime import UTC, datetime

import pytest

from agent.identities.authorization import FILE, _made_up, is_of
from agent.sinks.files import atomic_writer, orphan
from agent.sinks.files.atomic_writer import FileAttributes
from agent.sinks.files.lock import NAME as LOCK
from agent.sinks.files.lock import Lock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOOK = FileAttributes(mode=0o640)


def volume(root, identity="app", *, made=True, name="..2026_01_01_00_00_00.aa", authorization=None):
    """An identity's directory, as the sink writes it."""
    root.mkdir(exist_ok=True)
    root.chmod(0o750)
    times = {"iat": None, "exp": None}
    manifest = {"identity": identity, "digest": "d", "generation": 1, "token": times, "credential": times, "madeDirectory": made}
    files = {"token": b"secret"}
    manifest["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files["grant.json"] = json.dumps(manifest).encode()
    fd = os.open(root, os.O_RDONLY)
    try:
        atomic_writer.stage(fd, name, files, LOOK, now=NOW, durable=False)
        atomic_writer.publish(fd, name)
        atomic_writer.link(fd, files)
        if authorization:
            atomic_writer.create(fd, FILE, authorization, LOOK, durable=False)
    finally:
        os.close(fd)
    return root


def remove(root, identity="app"):
    return orphan.remove(str(root), identity, beside=FILE, is_identitys=lambda text: is_of(text, identity))


def listing(root):
    return sorted((str(path.relative_to(root)), path.lstat().st_mode, path.lstat().st_uid) for path in root.rglob("*"))


def test_an_identitys_generations_links_and_authorization_go_with_the_directory(tmp_path):
    root = volume(tmp_path / "app", authorization=_made_up("app").reveal().encode())
    volume(root, name="..2026_01_02_00_00_00.bb")
    assert remove(root)
    assert not root.exists()
    assert not remove(root), "nor is it an error that it is gone"


def test_directory_that_the_agent_did_not_make_stays(tmp_path):
    root = volume(tmp_path / "app", made=False)
    (root / "foreign").write_text("x")
    assert remove(root)
    assert set(os.listdir(root)) - {LOCK} == {"foreign"}


def test_another_identitys_files_stay(tmp_path):
    root = volume(tmp_path / "app", "other", authorization=_made_up("other").reveal().encode())
    before = listing(root)
    assert not remove(root)
    assert listing(root) == before


def test_kubelets_projected_volume_and_any_other_directory_stay(tmp_path):
    root = tmp_path / "projected"
    (root / "..2026_01_01_00_00_00.1").mkdir(parents=True)
    (root / "..2026_01_01_00_00_00.1" / "token").write_text("t")
    (root / "..data").symlink_to("..2026_01_01_00_00_00.1")
    (root / "token").symlink_to("..data/token")
    (root / FILE).write_text("a password of somebody's")
    root.chmod(0o777)
    before, mode = listing(root), root.stat().st_mode
    assert not remove(root)
    assert (listing(root), root.stat().st_mode) == (before, mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory away")
def test_another_uids_generation_stays_although_it_names_the_identity(tmp_path):
    root = volume(tmp_path / "app")
    os.chown(root / "..2026_01_01_00_00_00.aa", 65534, -1)
    assert not remove(root)
    assert (root / "token").read_text() == "secret"


def test_generation_that_others_may_write_to_stays(tmp_path):
    root = volume(tmp_path / "app")
    (root / "..2026_01_01_00_00_00.aa").chmod(0o777)
    assert not remove(root)
    assert (root / "token").exists()


def test_old_generations_of_a_former_identity_go_and_the_live_one_of_another_stays(tmp_path):
    root = volume(tmp_path / "app", "former")
    volume(root, "heir", name="..2026_01_02_00_00_00.bb")
    assert remove(root, "former")
    assert (root / "token").read_text() == "secret"
    assert atomic_writer.GENERATION.fullmatch(os.readlink(root / "..data"))
    assert not (root / "..2026_01_01_00_00_00.aa").exists()


def test_directory_that_a_sink_holds_is_left_for_later(tmp_path):
    root = volume(tmp_path / "app")
    fd, held = os.open(root, os.O_RDONLY), Lock()
    try:
        held.take(fd)
        with pytest.raises(BlockingIOError):
            remove(root)
    finally:
        held.release()
        os.close(fd)
    assert remove(root)


@pytest.mark.parametrize("what", ["link", "file", "nothing"])
def test_what_is_not_a_directory_is_left(tmp_path, what):
    real = volume(tmp_path / "real")
    path = tmp_path / "app"
    if what == "link":
        path.symlink_to(real)
    elif what == "file":
        path.write_text("x")
    assert not remove(path)
    assert (real / "token").exists()
    assert os.path.lexists(path) == (what != "nothing")
