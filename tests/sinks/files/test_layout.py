"""What a workload finds: names, contents, modes, and how long."""

import json
import os
import stat
from pathlib import Path

import pytest

from agent.errors import Rejected
from agent.settings import Duration, FileMode
from tests.fakes import START
from tests.sinks.files.grants_and_sinks import Bench, FakeCredential, contents, generations, machinery, make_grant


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


async def test_a_grant_lies_there_as_kubelet_lays_out_a_projected_volume(bench: Bench, directory: Path) -> None:
    await bench.sink(directory).write(make_grant(3, companions={"ca.crt": "PEM", "namespace": "demo"}))
    assert sorted(contents(directory)) == ["ca.crt", "config", "credentialsFile", "grant.json", "namespace", "token"]
    assert contents(directory)["token"] == "header.payload.signature.app.3"  # no newline
    [name] = generations(directory)
    assert name.startswith("..2026_01_01_00_00_00.")
    assert os.readlink(directory / "..data") == name
    assert os.readlink(directory / "token") == "..data/token"
    assert machinery(directory) == [name, "..data"]


async def test_the_manifest_names_identity_settings_times_and_hashes_and_nothing_secret(bench: Bench, directory: Path) -> None:
    credential = FakeCredential(issued_at=START, expires_at=START.replace(hour=1))
    await bench.sink(directory).write(make_grant(3, credential=credential, lifetime=60))
    manifest = json.loads((directory / "grant.json").read_text())
    assert manifest["identity"] == "app"
    assert manifest["digest"] == "d1"
    assert manifest["generation"] == 3
    assert manifest["token"] == {"iat": "2026-01-01T00:00:00Z", "exp": "2026-01-01T00:01:00Z"}
    assert manifest["credential"] == {"iat": "2026-01-01T00:00:00Z", "exp": "2026-01-01T01:00:00Z"}
    assert sorted(manifest["files"]) == ["config", "credentialsFile", "token"]
    assert "signature" not in (directory / "grant.json").read_text()


async def test_without_a_token_there_is_no_token_file_and_the_times_are_null(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant(token=None))
    assert "token" not in contents(directory)
    delivery = await sink.read()
    assert delivery
    assert delivery.token_expires_at is delivery.credential_expires_at is None


async def test_files_bear_the_names_and_the_mount_path_that_the_operator_chose(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory, mount_path="/var/run/id", names={"token": "azure-identity-token"})
    await sink.write(make_grant(token="t"))
    assert contents(directory)["azure-identity-token"] == "t.app.1"
    assert "token=/var/run/id/azure-identity-token" in contents(directory)["credentialsFile"]
    assert (await bench_restart(bench, sink, directory, mount_path="/var/run/id", names={"token": "azure-identity-token"})) == "t.app.1"


async def bench_restart(bench: Bench, sink, directory: Path, **settings) -> str:
    await sink.close()
    prior = await bench.sink(directory, **settings).adopt()
    assert prior
    assert prior.token
    return prior.token.reveal()


@pytest.mark.parametrize(
    "names", [{"token": "config"}, {"token": "grant.json"}, {"token": "../x"}, {"token": "..data"}, {"token": ""}, {"token": "a" * 256}]
)
async def test_names_that_no_file_can_have_are_refused_before_anything_is_written(
    bench: Bench, directory: Path, names: dict[str, str]
) -> None:
    with pytest.raises(Rejected, match="names"):
        await bench.sink(directory, names=names).write(make_grant())
    assert not directory.exists()


async def test_a_file_that_is_no_longer_in_the_set_loses_its_link(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant(1, credential=FakeCredential(contents={"credentials": "x"})))
    (directory / "mine").write_text("left alone")
    (directory / "elsewhere").symlink_to("..data/token")
    await sink.write(make_grant(2))
    assert sorted(contents(directory)) == ["config", "credentialsFile", "elsewhere", "grant.json", "mine", "token"]


async def test_no_link_ever_leads_out_of_the_directory_by_an_absolute_path(bench: Bench, directory: Path) -> None:
    await bench.sink(directory).write(make_grant())
    assert not [path for path in directory.iterdir() if path.is_symlink() and os.readlink(path).startswith("/")]


@pytest.mark.parametrize(
    ("given", "files", "directories"), [("0640", 0o640, 0o750), ("0644", 0o644, 0o755), ("0600", 0o600, 0o700), ("0440", 0o440, 0o750)]
)
async def test_modes_are_as_given_past_any_umask(bench: Bench, directory: Path, given: str, files: int, directories: int) -> None:
    before = os.umask(0o077)
    try:
        sink = bench.sink(directory, mode=FileMode.parse(given))
        await sink.write(make_grant())
    finally:
        os.umask(before)
    [name] = generations(directory)
    assert {mode(path) for path in (directory / name).iterdir()} == {files}
    assert mode(directory) == mode(directory / name) == directories
    assert mode(directory.parent) == 0o755


async def test_under_a_parent_with_setgid_directories_have_it_and_files_its_group(bench: Bench, directory: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another group")
    directory.parent.mkdir()
    os.chown(directory.parent, -1, 4242)
    directory.parent.chmod(0o2777)
    sink = bench.sink(directory)
    await sink.write(make_grant(1))
    await sink.write(make_grant(2))
    directory.chmod(0o750)  # somebody's chmod -R
    await sink.write(make_grant(3))
    for name in generations(directory):
        assert mode(directory / name) == 0o2750
        assert {path.stat().st_gid for path in (directory / name).iterdir()} == {4242}
    assert (mode(directory), directory.stat().st_gid) == (0o2750, 4242)


async def test_a_given_group_wins_over_the_inherited_one(bench: Bench, directory: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another group")
    directory.parent.mkdir()
    os.chown(directory.parent, -1, 4242)
    directory.parent.chmod(0o2777)
    await bench.sink(directory, group=4343, owner="1000").write(make_grant())
    [name] = generations(directory)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (directory / name).iterdir()} == {(1000, 4343)}
    assert (directory.stat().st_uid, directory.stat().st_gid) == (0, 4343)
    assert mode(directory) == mode(directory / name) == 0o2755  # the owner is none of the group, and has to enter


async def test_a_replaced_generation_lives_on_for_the_grace(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory, grace=Duration(30))
    await sink.write(make_grant(1))
    bench.clock.jump(1000)
    await sink.write(make_grant(2))
    bench.clock.jump(29)
    await sink.read()
    assert len(generations(directory)) == 2
    bench.clock.jump(1)
    await sink.read()
    assert len(generations(directory)) == 1


async def test_at_most_32_replaced_generations_are_kept_and_the_oldest_go_first(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    for number in range(1, 41):
        await sink.write(make_grant(number))
        bench.clock.jump(0.01)
    tokens = sorted(int((directory / name / "token").read_text().rpartition(".")[2]) for name in generations(directory))
    assert tokens == list(range(8, 41))


async def test_after_a_restart_what_was_replaced_keeps_the_rest_of_its_grace(bench: Bench, directory: Path) -> None:
    before = bench.sink(directory)
    await before.write(make_grant(1))
    bench.clock.jump(2000)  # it was live for long
    await before.write(make_grant(2))
    await before.close()
    bench.clock.jump(10)
    after = bench.sink(directory)
    assert await after.adopt()
    assert len(generations(directory)) == 2
    bench.clock.jump(20)
    await after.read()
    assert len(generations(directory)) == 1


async def test_a_clock_that_runs_backwards_does_not_keep_old_generations_for_ever(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant(1))
    await sink.write(make_grant(2))
    bench.clock.jump(-5000)
    await sink.read()
    bench.clock.jump(31)
    await sink.read()
    assert len(generations(directory)) == 1


async def test_a_withdrawn_identity_leaves_nothing_behind_not_even_its_directory(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant(1))
    await sink.write(make_grant(2))
    await sink.withdraw()
    assert not directory.exists()
    assert await sink.read() is None
    await sink.write(make_grant(3))
    await sink.close()
    again = bench.sink(directory)
    assert await again.adopt()
    await again.withdraw()  # a later process knows from the manifest who made the directory
    assert not directory.exists()


@pytest.mark.parametrize("foreign", [True, False])
async def test_withdrawal_leaves_an_earlier_directory_and_files_of_others(bench: Bench, directory: Path, *, foreign: bool) -> None:
    directory.mkdir(parents=True)
    if foreign:
        (directory / "mine").write_text("x")
    sink = bench.sink(directory)
    await sink.write(make_grant())
    await sink.withdraw()
    assert [path.name for path in directory.iterdir()] == (["mine"] if foreign else [])
