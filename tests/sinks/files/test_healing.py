"""What somebody else does to the directory, and how it is put right."""

import os
import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.errors import NotReady, Rejected
from tests.sinks.files.grants_and_sinks import Bench, contents, generations, make_grant


def events(logs) -> list[str]:
    return [entry["event"] for entry in logs]


async def test_read_returns_the_generation_number_of_a_grant_of_this_process(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    assert await sink.read() is None
    grant = make_grant(7)
    await sink.write(grant)
    delivery = await sink.read()
    assert delivery
    assert grant.token
    assert (delivery.generation, delivery.token_expires_at) == (7, grant.token.expires_at)
    await sink.close()
    later = await bench.sink(directory).read()
    assert later
    assert (later.generation, later.token_expires_at) == (0, grant.token.expires_at)


@pytest.mark.parametrize("damage", ["byte", "size", "gone", "extra", "manifest", "link", "fifo"])
async def test_a_generation_that_is_not_what_was_written_is_not_usable(bench: Bench, directory: Path, damage: str) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant())
    assert await sink.read()
    live = directory / "..data"
    token = live / "token"
    match damage:
        case "byte":
            token.write_text(token.read_text().replace("app", "bpp"))
        case "size":
            token.write_text("")
        case "gone":
            token.unlink()
        case "extra":
            (live / "more").write_text("x")
        case "manifest":
            (live / "grant.json").write_text("{}")
        case "link":
            token.rename(directory / "elsewhere")
            token.symlink_to(directory / "elsewhere")
        case "fifo":
            token.unlink()
            os.mkfifo(token)
    with capture_logs() as logs:
        assert await sink.read() is None
        assert await sink.read() is None
    assert events(logs) == ["generation.refused"]  # once
    await sink.write(make_grant(2))
    assert await sink.read()


async def test_files_are_hashed_again_only_when_they_may_have_changed(
    bench: Bench, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant())
    await sink.read()
    from agent.sinks.files import generation

    def unexpected(*_args, **_named):
        raise AssertionError

    monkeypatch.setattr(generation, "inspect", unexpected)
    assert await sink.read()
    os.utime(directory / "..data" / "token")
    with pytest.raises(AssertionError):
        await sink.read()


async def test_missing_links_are_put_back_without_a_new_generation(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant())
    before = generations(directory)
    (directory / "token").unlink()
    (directory / "config").unlink()
    (directory / "config").symlink_to("/etc/passwd")
    (directory / "credentialsFile").unlink()
    (directory / "credentialsFile").write_text("mine")
    assert await sink.read()
    assert os.readlink(directory / "config") == "..data/config"
    assert contents(directory)["token"].endswith("app.1")
    assert contents(directory)["credentialsFile"].startswith("[default]")
    assert generations(directory) == before


@pytest.mark.parametrize("drift", [0o000, 0o666, 0o600])
async def test_drifted_modes_are_put_right_without_a_new_generation(bench: Bench, directory: Path, drift: int) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant())
    [name] = generations(directory)
    (directory / name / "token").chmod(drift)
    (directory / name).chmod(0o777)
    directory.chmod(0o777)
    assert await sink.read()
    assert stat.S_IMODE((directory / "token").stat().st_mode) == 0o640
    assert stat.S_IMODE((directory / name).stat().st_mode) == 0o750
    assert stat.S_IMODE(directory.stat().st_mode) == 0o750
    assert generations(directory) == [name]


async def test_what_the_agent_gave_away_for_another_ones_eyes_alone_is_judged_by_its_looks(
    bench: Bench, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent.sinks.files import generation

    def blind(*_args, **_named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(generation, "inspect", blind)
    sink = bench.sink(directory)
    await sink.write(make_grant(3))
    delivery = await sink.read()
    assert delivery
    assert delivery.generation == 3
    (directory / "..data" / "token").write_text("other")
    assert await sink.read() is None
    await sink.close()
    assert await bench.sink(directory).read() is None  # one that did not write it cannot know


async def test_drifted_owners_are_put_right(bench: Bench, directory: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    sink = bench.sink(directory)
    await sink.write(make_grant())
    os.chown(directory / "..data" / "token", 1000, 1000)
    assert await sink.read()
    seen = (directory / "token").stat()
    assert (seen.st_uid, seen.st_gid) == (0, os.getegid())


async def test_two_swapped_directories_are_rewritten_and_nothing_is_adopted(bench: Bench, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first, second = bench.sink(one, identity="one"), bench.sink(two, identity="two")
    await first.write(make_grant(1, identity="one"))
    await second.write(make_grant(1, identity="two"))
    one.rename(tmp_path / "x")
    two.rename(one)
    (tmp_path / "x").rename(two)
    assert contents(one)["token"].endswith("two.1")  # what one's workload would read
    with capture_logs() as logs:
        assert await first.read() is None  # the courier writes, then
        assert not one.exists() or contents(one) == {}
        await first.write(make_grant(1, identity="one"))
        assert await second.read() is None
        assert contents(two) == {}
        await second.write(make_grant(1, identity="two"))
    assert [(entry["event"], entry["identity"]) for entry in logs] == [("directory.replaced", "one"), ("directory.replaced", "two")]
    assert [entry["sink"] for entry in logs] == [first.name, second.name]
    assert contents(one)["token"].endswith("one.1")
    assert contents(two)["token"].endswith("two.1")
    assert await first.read()
    assert await second.read()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


async def test_directories_swapped_while_the_agent_was_away_are_emptied_at_once(bench: Bench, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for directory in (one, two):
        sink = bench.sink(directory, identity=directory.name)
        await sink.write(make_grant(identity=directory.name))
        await sink.close()
    one.rename(tmp_path / "x")
    two.rename(one)
    (tmp_path / "x").rename(two)
    assert await bench.sink(one, identity="one").adopt() is None
    assert contents(one) == {}


async def test_a_replaced_directory_is_written_anew_and_nothing_in_it_is_adopted(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant(1))
    directory.rename(directory.with_name("old"))
    directory.mkdir()
    (directory / "token").write_text("planted")
    assert await sink.read() is None
    await sink.write(make_grant(2))
    assert contents(directory)["token"].endswith("app.2")


async def test_a_removed_directory_is_made_again(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant(1))
    import shutil

    shutil.rmtree(directory.parent)
    assert await sink.read() is None
    await sink.write(make_grant(2))
    assert contents(directory)["token"].endswith("app.2")


async def test_one_writer_for_a_directory(bench: Bench, directory: Path) -> None:
    first, second = bench.sink(directory), bench.sink(directory, identity="other")
    await first.write(make_grant())
    with pytest.raises(Rejected, match="another agent or identity writes to") as caught:
        await second.write(make_grant(identity="other"))
    assert str(directory) in caught.value.message
    assert await first.read()
    await first.close()
    await second.write(make_grant(identity="other"))


async def test_withdrawal_takes_away_what_was_written_even_where_somebody_moved_it(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant())
    moved = directory.with_name("moved")
    directory.rename(moved)
    directory.mkdir()
    await sink.withdraw()
    assert list(moved.iterdir()) == []
    assert directory.exists()


async def test_withdrawal_leaves_what_is_another_identitys(bench: Bench, directory: Path) -> None:
    other = bench.sink(directory, identity="other")
    await other.write(make_grant(identity="other"))
    await other.close()
    await bench.sink(directory).withdraw()
    assert contents(directory)["token"].endswith("other.1")


async def test_hostile_links_are_not_followed_and_hard_links_not_written_to(bench: Bench, directory: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "victim"
    victim.write_text("untouched")
    victim.chmod(0o600)
    directory.mkdir(parents=True)
    (directory / "..data_tmp").symlink_to(outside)
    (directory / "..link_tmp").symlink_to(victim)
    (directory / "..data").symlink_to(outside)
    (directory / "token").symlink_to(victim)
    os.link(victim, directory / "config")
    (directory / "..2020_01_01_00_00_00.abc").symlink_to(outside)
    (outside / "token").write_text("hostile")
    sink = bench.sink(directory)
    assert await sink.adopt() is None
    assert await sink.read() is None
    await sink.write(make_grant())
    assert contents(directory)["token"].endswith("app.1")
    os.link(victim, directory / "..data" / "extra")  # in the live generation
    assert await sink.read() is None
    await sink.write(make_grant(2))
    bench.clock.jump(60)
    await sink.read()
    assert (victim.read_text(), (outside / "token").read_text()) == ("untouched", "hostile")
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert sorted(path.name for path in outside.iterdir()) == ["token", "victim"]
    assert len(generations(directory)) == 1


async def test_a_hard_linked_file_in_the_live_generation_is_not_given_another_mode(bench: Bench, directory: Path, tmp_path: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant())
    token = directory / "..data" / "token"
    os.link(token, tmp_path / "elsewhere")
    token.chmod(0o600)
    assert await sink.read() is None
    await sink.write(make_grant(2))
    assert await sink.read()
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o600


async def test_an_undeletable_generation_of_another_uid_is_left_and_logged_once(bench: Bench, directory: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    sink = bench.sink(directory)
    await sink.write(make_grant())
    [name] = generations(directory)
    os.chown(directory / name, 1000, -1)
    with capture_logs() as logs:
        assert await sink.read() is None
    assert logs[-1]["reason"] == "its directory belongs to uid 1000"


@pytest.mark.parametrize("what", ["file", "link", "dangling", "below"])
async def test_a_place_that_is_no_directory_of_its_own_is_refused(bench: Bench, tmp_path: Path, what: str) -> None:
    directory = tmp_path / "app"
    match what:
        case "file":
            directory.write_text("x")
        case "link":
            (tmp_path / "real").mkdir()
            directory.symlink_to("real")
        case "dangling":
            directory.symlink_to("nowhere")
        case "below":
            (tmp_path / "..data").mkdir()
            directory = tmp_path / "..data" / "app"
    sink = bench.sink(directory)
    before = sorted(tmp_path.rglob("*"))
    for attempt in (sink.write(make_grant()), sink.read(), sink.adopt()):
        with pytest.raises(Rejected) as caught:
            await attempt
        assert caught.value.message.startswith("app: ")
        assert str(directory) in caught.value.message
        wanted = {"file": "name a directory", "link": "remove it", "dangling": "remove it", "below": "outside"}
        assert wanted[what] in caught.value.remedy
    assert sorted(tmp_path.rglob("*")) == before


async def test_a_parent_that_is_a_file_is_refused(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Rejected, match="ENOTDIR"):
        await bench.sink(tmp_path / "file" / "app").write(make_grant())


async def test_links_on_the_way_are_followed_where_no_stranger_can_have_put_them(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "run").symlink_to("../run")
    await bench.sink(tmp_path / "var" / "run" / "app").write(make_grant())
    assert (tmp_path / "run" / "app" / "token").exists()
    (tmp_path / "var").chmod(0o777)
    with pytest.raises(Rejected, match=r"'run' on the way to .*/var/run/b is a symbolic link that another user may have made"):
        await bench.sink(tmp_path / "var" / "run" / "b").write(make_grant())


async def test_links_that_lead_round_in_circles_are_refused(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(Rejected, match="ELOOP"):
        await bench.sink(tmp_path / "a" / "app").write(make_grant())


async def test_a_directory_of_another_uid_is_refused(bench: Bench, directory: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    directory.mkdir(parents=True)
    os.chown(directory, 1000, 1000)
    with pytest.raises(Rejected, match="belongs to uid 1000"):
        await bench.sink(directory).write(make_grant())
    await bench.sink(directory, owner=1000).write(make_grant())  # but the files' own owner is as good as the agent


async def test_an_existing_directory_with_foreign_things_in_it_keeps_its_mode(bench: Bench, directory: Path) -> None:
    directory.mkdir(parents=True)
    directory.chmod(0o711)
    (directory / "mine").write_text("x")
    await bench.sink(directory).write(make_grant())
    assert stat.S_IMODE(directory.stat().st_mode) == 0o711


async def test_a_directory_where_a_link_has_to_be_is_refused_and_the_old_generation_stays(bench: Bench, directory: Path) -> None:
    sink = bench.sink(directory)
    await sink.write(make_grant(1))
    (directory / "namespace").mkdir()
    with pytest.raises(Rejected, match="namespace"):
        await sink.write(make_grant(2, companions={"namespace": "demo"}))
    assert contents_without(directory, "namespace")["token"].endswith("app.1")
    (directory / "namespace").rmdir()
    await sink.write(make_grant(2, companions={"namespace": "demo"}))
    assert contents(directory)["token"].endswith("app.2")


def contents_without(directory: Path, name: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir() if not path.name.startswith("..") and path.name != name}


async def test_a_directory_in_use_that_was_put_in_the_place_of_ours_is_waited_for(bench: Bench, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first, second = bench.sink(one, identity="one"), bench.sink(two, identity="one")  # so that it cannot be told by its manifest
    await first.write(make_grant(identity="one"))
    await second.write(make_grant(identity="one"))
    one.rename(tmp_path / "x")
    two.rename(one)
    with pytest.raises(NotReady, match="in use"):
        await first.read()
    await second.close()
    assert await first.read() is None
    await first.write(make_grant(2, identity="one"))
    assert contents(one)["token"].endswith("one.2")
