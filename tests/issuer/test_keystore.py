"""The state directory: closed to others, never guessed at, never made anew where something is missing."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigError
from agent.issuer import keys, rotation
from agent.issuer.keystore import KeyStore
from agent.issuer.rotation import Rhythm
from tests.fakes import START

RHYTHM = Rhythm(every=100, publish_before=10, longest_lifetime=10)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state with one key."""
    directory = tmp_path / "below" / "state"
    store = KeyStore(directory)
    store.open()
    store.load()
    key, pem = keys.generate("ES256")
    store.add(key, pem)
    store.index([rotation.first_term(key.kid, START, RHYTHM)])
    store.close()
    return directory


def load(state: Path, *, shared: bool = False) -> Any:
    store = KeyStore(state)
    store.open(shared=shared)
    try:
        return store.load()
    finally:
        store.close()


def pem_of(state: Path) -> Path:
    (path,) = state.glob("*.pem")
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directory_and_files_are_the_agents_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = KeyStore(tmp_path / "state")
        store.open()
        key, pem = keys.generate("ES256")
        store.add(key, pem)
        store.close()
    finally:
        os.umask(before)
    assert mode(tmp_path / "state") == 0o700
    assert {mode(path) for path in (tmp_path / "state").iterdir()} == {0o600}


def test_modes_that_let_others_in_are_repaired(state: Path) -> None:
    state.chmod(0o755)
    pem_of(state).chmod(0o640)
    load(state)
    assert (mode(state), mode(pem_of(state))) == (0o700, 0o600)


@pytest.mark.parametrize("what", ["directory", "key"])
def test_what_belongs_to_somebody_else_is_refused(state: Path, what: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(state if what == "directory" else pem_of(state), 1234, -1)
    with pytest.raises(ConfigError, match="belongs to uid 1234"):
        load(state)


LENGTHS = [10**400, 10**10, 0, -1, float("nan"), float("inf"), "9" * 400, "nan", None]


def break_index(text: str) -> Any:
    return lambda state: (state / "index.json").write_text(text)


def edit_index(**fields: Any) -> Any:
    def edit(state: Path) -> None:
        document = json.loads((state / "index.json").read_text())
        document["keys"][0].update(fields)
        (state / "index.json").write_text(json.dumps(document))

    return edit


def link(state: Path) -> None:
    elsewhere = state.parent / "elsewhere.pem"
    pem_of(state).rename(elsewhere)
    index = json.loads((state / "index.json").read_text())
    (state / f"key-{index['keys'][0]['kid']}.pem").symlink_to(elsewhere)


def swap(state: Path) -> None:
    pem_of(state).write_bytes(keys.generate("ES256")[1])


def pipe(state: Path) -> None:
    path = pem_of(state)
    path.unlink()
    os.mkfifo(path)


def weak(state: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP384R1())
    pem_of(state).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize(
    ("damage", "file", "why"),
    [
        (break_index(""), "index.json", "is not the index that the agent wrote"),
        (break_index("[]"), "index.json", "is not the index that the agent wrote"),
        (break_index('{"version": 1, "keys": [{}]}'), "index.json", "is not the index that the agent wrote"),
        (break_index('{"version": 2, "keys": []}'), "index.json", "has the version 2, not 1"),
        (break_index("[" * 100_000), "index.json", "is not the index that the agent wrote"),
        (edit_index(signsFrom="2026-01-01T00:00:00"), "index.json", "is not the index that the agent wrote"),
        (edit_index(kid="../../elsewhere"), "index.json", "is not the index that the agent wrote"),
        *((edit_index(longestLifetime=length), "index.json", "is not the index that the agent wrote") for length in LENGTHS),
        (edit_index(signsFrom="9999-12-31T00:00:00+00:00"), "index.json", "is not the index that the agent wrote"),
        (edit_index(publishedAt="0001-01-01T00:00:00+23:59"), "index.json", "is not the index that the agent wrote"),
        (edit_index(kid="x" * 300), "index.json", "is not the index that the agent wrote"),
        (break_index('{"version": ' + "9" * 5000 + ', "keys": []}'), "index.json", "is not the index that the agent wrote"),
        (lambda state: (state / "index.json").unlink(), "index.json", "is missing, and keys are there"),
        (lambda state: pem_of(state).unlink(), "key-", "cannot be read: No such file"),
        (lambda state: pem_of(state).write_bytes(b""), "key-", "not an unencrypted private key"),
        (weak, "key-", "neither an RSA key of at least 2048 bits nor one on the curve P-256"),
        (swap, "key-", "holds another key than its name says"),
        (link, "key-", "cannot be read: Too many levels of symbolic links"),
        (pipe, "key-", "is not a regular file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_state_is_refused_by_file_and_remedy_and_left_as_it_is(state: Path, damage: Any, file: str, why: str) -> None:
    damage(state)
    before = sorted(state.iterdir())
    with pytest.raises(ConfigError) as refusal:
        load(state)
    assert f"{state}/{file}" in refusal.value.message
    assert why in refusal.value.message
    assert "backup" in refusal.value.remedy
    assert "PRIVATE KEY" not in str(refusal.value)
    assert sorted(state.iterdir()) == before


def test_strays_of_an_interrupted_change_are_removed_and_other_files_left(state: Path) -> None:
    for name in ("key-stray.pem", ".newindex.json", ".newkey-x.pem", "notes.txt"):
        (state / name).touch()
    assert len(load(state)) == 1
    assert {path.name for path in state.iterdir()} == {"index.json", pem_of(state).name, "notes.txt"}


@pytest.mark.parametrize("make", [lambda path: path.touch(), lambda path: (path.parent / "a").symlink_to(path) or path.symlink_to("a")])
def test_a_state_that_is_no_directory_is_refused(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "state")
    with pytest.raises(ConfigError, match="cannot use"):
        load(tmp_path / "state")


def test_a_refused_state_is_not_kept_locked(state: Path) -> None:
    text = (state / "index.json").read_text()
    (state / "index.json").write_text("")
    for _ in range(2):
        with pytest.raises(ConfigError, match="not the index"):
            load(state)
    (state / "index.json").write_text(text)
    assert len(load(state)) == 1
