"""An issuer whose keys somebody else makes: the doctor looks at them as the agent does."""

from pathlib import Path

import pytest

from agent.issuer.keyring import Keyring
from tests.doctor.scene import Scene
from tests.fakes import START, FakeClock

DAY = 86400.0


def configure(stage: Scene) -> None:
    config = stage.embedded()
    config["issuer"] = {**config["issuer"], "readOnly": True, "state": "./given"}
    stage.configure(config)


async def line(stage: Scene) -> str:
    _, text = await stage.doctor()
    lines = text.splitlines()
    (found,) = [index for index, line in enumerate(lines) if line.startswith("  source ")]
    return " ".join(" ".join(lines[found : found + 2]).split())


async def test_missing_read_only_keys_have_the_remedy_to_put_them_there(stage: Scene) -> None:
    Path("given").mkdir()
    configure(stage)
    assert (
        "broken issuer: there is no key in ./given → put the keys into that directory: with issuer.readOnly another process makes them"
        in await line(stage)
    )


@pytest.mark.parametrize("mode", [0o600, 0o606])
async def test_read_only_keys_are_checked_as_the_agent_does(stage: Scene, mode: int) -> None:
    async with Keyring(Path("given"), "ES256", 30 * DAY, DAY, DAY, FakeClock(START)):
        pass
    Path("given/index.json").chmod(mode)
    configure(stage)
    assert ("signs with the key in ./given" if mode == 0o600 else "can be changed by others") in await line(stage)
