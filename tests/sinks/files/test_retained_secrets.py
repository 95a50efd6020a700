"""The small file that stays beside the generations."""

import os
import stat
from pathlib import Path

import pytest

from agent.model import Secret
from tests.sinks.files.grants_and_sinks import Bench, contents, make_grant


async def test_it_is_there_before_any_generation_and_recalled_after_a_restart(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    assert await sink.recall("authorization") is None
    await sink.retain("authorization", Secret("s3cret"))
    assert contents(directory) == {"authorization": "s3cret"}
    assert stat.S_IMODE((directory / "authorization").stat().st_mode) == 0o640
    await sink.close()
    again = bench.sink(directory)
    recalled = await again.recall("authorization")
    assert recalled
    assert recalled.reveal() == "s3cret"
    await again.retain("authorization", recalled)
    await again.write(make_grant())
    (directory / "authorization").unlink()
    assert await again.read()
    assert contents(directory)["authorization"] == "s3cret"


@pytest.mark.parametrize("how", ["writable", "hard link", "link", "owner", "empty"])
async def test_what_others_may_have_written_is_not_recalled(bench: Bench, directory: Path, tmp_path: Path, how: str) -> None:
    directory.mkdir(parents=True)
    file = directory / "authorization"
    file.write_text("" if how == "empty" else "planted")
    file.chmod(0o666 if how == "writable" else 0o640)
    if how == "hard link":
        os.link(file, tmp_path / "elsewhere")
    if how == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    if how == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        os.chown(file, 1000, -1)
    sink = bench.sink(directory)
    assert await sink.recall("authorization") is None
    await sink.retain("authorization", Secret("own"))
    assert contents(directory) == {"authorization": "own"}


async def test_it_goes_with_the_identity(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.retain("authorization", Secret("s3cret"))
    await sink.write(make_grant())
    await sink.withdraw_all()
    assert not directory.exists()


async def test_it_stays_where_the_identity_is_expected_back_and_nothing_else_does(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.retain("authorization", Secret("s3cret"))
    await sink.write(make_grant())
    await sink.withdraw()
    assert sorted(path.name for path in directory.iterdir()) == ["authorization"]
    again = bench.sink(directory)
    recalled = await again.recall("authorization")
    assert recalled
    assert recalled.reveal() == "s3cret"
    await again.withdraw_all()
    assert list(directory.iterdir()) == []


async def test_what_is_retained_for_nobody_keeps_no_directory(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant())
    await sink.withdraw()
    assert not directory.exists()


async def test_what_lies_beside_another_identitys_generation_is_not_recalled(bench: Bench, directory: Path) -> None:
    former = bench.sink(directory, identity="former")
    await former.retain("authorization", Secret("s3cret"))
    await former.write(make_grant(identity="former"))
    await former.close()
    assert await bench.sink(directory, identity="heir").recall("authorization") is None


async def test_another_identitys_does_not_stay_where_directories_were_swapped(bench: Bench, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    sinks = [bench.sink(directory, identity=directory.name) for directory in (one, two)]
    for sink, name in zip(sinks, ("one", "two"), strict=True):
        await sink.retain("authorization", Secret(f"{name}'s"))
        await sink.write(make_grant(identity=name))
    one.rename(tmp_path / "x")
    two.rename(one)
    (tmp_path / "x").rename(two)
    for sink, directory in zip(sinks, (one, two), strict=True):
        assert await sink.read() is None
        assert not directory.exists() or contents(directory) == {}
        await sink.write(make_grant(identity=directory.name))
        assert contents(directory)["authorization"] == f"{directory.name}'s"
