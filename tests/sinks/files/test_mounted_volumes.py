"""Full disks, read-only volumes, other users: scenarios of `mounted_volume_scenarios.py`, each in a mount namespace of its own."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
UNSHARE = ["unshare", "--mount", "--propagation", "private"]
STORIES = {
    "full": "a_full_disk_keeps_the_old_generation_and_heals",
    "full_of_its_own": "a_disk_too_small_for_the_grace_says_so_and_goes_on",
    "read_only": "a_read_only_volume_is_read_said_and_heals",
    "not_permitted": "a_parent_without_permission_is_said_and_heals",
    "passable": "directories_on_the_way_need_not_be_readable",
    "owners": "owner_and_group_are_refused_where_the_agent_may_not_give_them",
    "readers": "uid_1000_reads_exactly_when_it_should",
    "hostile_neighbour": "a_hostile_neighbour_in_a_volume_open_to_all_changes_nothing_for_long",
    "strangers_setgid": "a_stranger_cannot_choose_the_group_of_the_files",
    "swapped_by_another_uid": "directories_swapped_by_another_uid_are_healed",
    "single_file_mount": "a_mount_of_a_single_file_is_refused",
}


@cache
def obstacle() -> str:
    """Why it cannot be tried here."""
    if os.geteuid() != 0:
        return "only root can mount and play other users"
    try:
        tried = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no unshare command"
    return tried.stderr.strip() if tried.returncode else ""


@pytest.mark.parametrize("scenario", [pytest.param(name, id=story) for name, story in STORIES.items()])
def test_on_a_mounted_volume(scenario: str) -> None:
    if obstacle():
        pytest.skip(obstacle())
    command = [*UNSHARE, sys.executable, "-W", "error", "-m", "tests.sinks.files.mounted_volume_scenarios", scenario]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
