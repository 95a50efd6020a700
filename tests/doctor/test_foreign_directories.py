"""Somebody has put another directory in the place of an identity's: the doctor says so before the agent has looked."""

import os
from pathlib import Path

import pytest

from tests.doctor.scene import NAME, Scene

PLACE = Path("run") / NAME


async def test_a_symbolic_link_as_directory_is_reported(stage: Scene) -> None:
    async with stage.agent():
        PLACE.rename("run/away")
        PLACE.symlink_to("away")
        code, text = await stage.doctor()
        assert code == 3
        assert f"./run/{NAME} is a symbolic link: readers follow it, and the agent does not write there" in text
        assert "Mount the volume readOnly in every other container" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
async def test_a_directory_of_another_user_is_reported(stage: Scene) -> None:
    async with stage.agent():
        PLACE.rename("run/away")
        PLACE.mkdir()
        os.chown(PLACE, 4242, -1)
        code, text = await stage.doctor()
        assert code == 3
        assert f"./run/{NAME} belongs to uid 4242, and the agent is uid {os.geteuid()}: clients read what that user puts there" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
async def test_a_directory_of_the_configured_owner_is_not_reported(stage: Scene) -> None:
    async with stage.agent(stage.configuration(sinks=[{"type": "files", "directory": f"./{PLACE}", "owner": 4242}])):
        os.chown(PLACE, 4242, -1)
        _, text = await stage.doctor()
        assert "belongs to" not in text
