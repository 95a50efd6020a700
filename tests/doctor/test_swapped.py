"""Somebody has put another directory in the place of an identity's: the doctor says so before the agent has looked."""

import os
from pathlib import Path

import pytest

from tests.doctor.scene import NAME, Scene

PLACE = Path("run") / NAME


async def test_a_link_in_its_place_is_named_at_once(stage: Scene) -> None:
    async with stage.agent():
        PLACE.rename("run/away")
        PLACE.symlink_to("away")
        code, text = await stage.doctor()
        assert code == 3
        assert f"./run/{NAME} is a symbolic link: readers follow it, and the agent does not write there" in text
        assert "Mount the volume readOnly in every other container" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
async def test_a_strangers_directory_in_its_place_is_named_at_once(stage: Scene) -> None:
    async with stage.agent():
        PLACE.rename("run/away")
        PLACE.mkdir()
        os.chown(PLACE, 4242, -1)
        code, text = await stage.doctor()
        assert code == 3
        assert f"./run/{NAME} belongs to uid 4242, and the agent is uid {os.geteuid()}: clients read what that user puts there" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
async def test_a_directory_that_was_given_to_its_owner_on_purpose_is_no_strangers(stage: Scene) -> None:
    async with stage.agent(stage.configuration(sinks=[{"type": "files", "directory": f"./{PLACE}", "owner": 4242}])):
        os.chown(PLACE, 4242, -1)
        _, text = await stage.doctor()
        assert "belongs to" not in text
