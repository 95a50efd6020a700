"""What clients present where nobody configured it: whose it is stays known, whatever becomes of the place that it lies in."""

from pathlib import Path

from agent.identities.authorization import FILE, Authorizations
from tests.sinks.files.grants_and_sinks import Bench


async def shared(bench: Bench, directory: Path, identity: str) -> str:
    """As a process that has just started has it."""
    sink = bench.sink(directory, identity=identity)
    text = await Authorizations().share(identity, [sink])
    await sink.close()
    assert (directory / FILE).read_text() == text.reveal()
    return text.reveal()


async def test_it_is_the_same_after_a_restart(bench: Bench, directory: Path) -> None:
    before = await shared(bench, directory, "one")
    assert len(before) >= 43
    assert await shared(bench, directory, "one") == before


async def test_who_gets_the_place_of_another_that_never_had_a_generation_makes_up_its_own(bench: Bench, directory: Path) -> None:
    before = await shared(bench, directory, "one")
    assert await shared(bench, directory, "two") not in {before, ""}
    assert before.partition(".")[0] not in (directory / FILE).read_text()


async def test_one_that_does_not_say_whose_it_is_is_taken_for_the_identitys(bench: Bench, directory: Path) -> None:
    """Agents before this one made such, and clients hold on to them."""
    directory.mkdir(parents=True)
    (directory / FILE).write_text("x" * 43)
    (directory / FILE).chmod(0o640)
    assert await shared(bench, directory, "one") == "x" * 43
