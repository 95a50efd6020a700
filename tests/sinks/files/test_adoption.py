"""What a sink vouches for after a restart, and what it does not."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.fakes import START
from tests.sinks.files.grants_and_sinks import Bench, FakeCredential, generations, machinery, make_grant


async def left_by_an_earlier_process(bench: Bench, directory: Path, **settings) -> None:
    sink = bench.sink(directory, **settings)
    credential = FakeCredential(issued_at=START, expires_at=START.replace(hour=2))
    await sink.write(make_grant(5, credential=credential, companions={"namespace": "demo"}))
    await sink.close()


async def test_a_restart_adopts_token_files_and_times(bench: Bench, directory: Path) -> None:
    await left_by_an_earlier_process(bench, directory)
    before = generations(directory)
    sink = bench.sink(directory)
    prior = await sink.adopt()
    assert prior
    assert prior.token
    assert prior.token.reveal() == "header.payload.signature.app.5"
    assert {name: secret.reveal()[:9] for name, secret in prior.files.items()} == {
        "config": "{}token=/",
        "credentialsFile": "[default]",
        "namespace": "demo",
    }
    assert prior.delivery.generation == 0
    assert prior.delivery.token_expires_at == START.replace(hour=1)
    assert prior.delivery.credential_expires_at == START.replace(hour=2)
    assert generations(directory) == before
    assert await sink.read() == prior.delivery


async def test_links_that_a_crash_left_out_are_made_and_what_it_left_behind_goes(bench: Bench, directory: Path) -> None:
    await left_by_an_earlier_process(bench, directory)
    (directory / "token").unlink()
    (directory / "..data_tmp").symlink_to("..2026_01_01_00_00_00.half")
    half = directory / "..2027_01_01_00_00_00.half"
    half.mkdir()
    (half / "token").write_text("ha")
    [live] = [name for name in generations(directory) if "half" not in name]
    assert await bench.sink(directory).adopt()
    assert machinery(directory) == [live, "..data"]
    assert (directory / "token").exists()


@pytest.mark.parametrize("name", ["", "..data", "config"])
async def test_nothing_there_is_nothing_to_adopt_and_not_worth_a_word(bench: Bench, directory: Path, name: str) -> None:
    if name:
        directory.mkdir(parents=True)
        (directory / name).write_text("x")
    with capture_logs() as logs:
        assert await bench.sink(directory).adopt() is None
    assert logs == []


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("digest", "settings have changed"),
        ("byte", "not those that were written"),
        ("extra", "not those that were written"),
        ("writable file", "token can be written by others (mode 0660)"),
        ("writable generation", "can be written by others (mode 0770)"),
        ("writable directory", "the identity's directory can be written by others (mode 0777)"),
        ("hard link", "token has another name elsewhere"),
        ("owner", "token belongs to uid 1000"),
        ("owner of the directory", "the identity's directory belongs to uid"),
        ("manifest", "no readable grant.json"),
        ("times", "no readable grant.json"),
        ("identity", "identity 'apq'"),
    ],
)
async def test_what_somebody_else_may_have_altered_is_not_adopted_and_it_is_said_why(
    bench: Bench, directory: Path, tmp_path: Path, damage: str, reason: str
) -> None:
    if damage.startswith("owner") and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    await left_by_an_earlier_process(bench, directory)
    live = directory / "..data"
    manifest = live / "grant.json"
    match damage:
        case "byte":
            (live / "token").write_text("header.payload.signature.app.6")
        case "extra":
            (live / "extra").write_text("x")
        case "writable file":
            (live / "token").chmod(0o660)
        case "writable generation":
            live.chmod(0o770)
        case "writable directory":
            directory.chmod(0o777)
            (directory / "mine").write_text("so that the mode is not the agent's to set")
            altered = manifest.read_text().replace('"madeDirectory": true', '"madeDirectory": false')
            manifest.write_text(altered)
        case "hard link":
            os.link(live / "token", tmp_path / "elsewhere")
        case "owner":
            os.chown(live / "token", 1000, -1)
        case "owner of the directory":
            os.chown(directory, 1000, -1)
        case "manifest":
            manifest.write_text("[]")
        case "times":
            manifest.write_text(manifest.read_text().replace("00Z", "00"))
        case "identity":
            manifest.write_text(manifest.read_text().replace('"app"', '"apq"'))
    sink = bench.sink(directory, digest="d2" if damage == "digest" else "d1", owner=1000 if damage == "owner of the directory" else None)
    with capture_logs() as logs:
        assert await sink.adopt() is None
    assert [entry["event"] for entry in logs] == ["generation.refused"]
    assert reason in logs[0]["reason"]
    if damage == "digest":  # the operator changed something: the old credential stays until the new one is delivered
        assert (directory / "token").read_text().endswith("app.5")


async def test_adopt_false_adopts_nothing(bench: Bench, directory: Path) -> None:
    await left_by_an_earlier_process(bench, directory)
    assert await bench.sink(directory, adopt=False).adopt() is None
