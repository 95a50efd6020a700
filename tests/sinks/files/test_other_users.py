"""Other users of a volume attack it: `other_user_scenarios.py`, each in a mount namespace of its own, in memory and on a disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sinks.files.test_mounted_volumes import REPOSITORY, UNSHARE, obstacle

STORIES = {
    "default_acl": "an_inherited_acl_lets_nobody_read",
    "inherited_by_an_earlier_agent": "acls_of_an_earlier_agent_are_removed",
    "lock_from_a_read_only_mount": "a_reader_that_locks_the_directory_stops_nothing",
    "lock_replaced": "a_replaced_lock_file_is_replaced_again",
    "renamed_away": "a_renamed_directory_is_emptied",
    "undeletable": "undeletable_entries_do_not_stop_a_withdrawal",
    "forged_generations": "forged_generations_delay_nothing",
    "out_of_descriptors": "missing_descriptors_do_not_lose_a_delivery",
}


def run(scenario: str, *arguments: str, **environment: str) -> str:
    if obstacle():
        pytest.skip(obstacle())
    command = [*UNSHARE, sys.executable, "-W", "error", "-m", "tests.sinks.files.other_user_scenarios", scenario, *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **environment}, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("scenario", [pytest.param(name, id=story) for name, story in STORIES.items()])
def test_on_a_volume_in_memory(scenario: str) -> None:
    run(scenario)


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, id=story) for name, story in STORIES.items() if name != "lock_from_a_read_only_mount"]
)
def test_on_a_disk(scenario: str, tmp_path: Path) -> None:
    if "acl" in STORIES[scenario]:
        try:
            os.getxattr(tmp_path, "system.posix_acl_access")
        except OSError as error:
            if error.strerror != os.strerror(61):
                pytest.skip(f"the disk has no ACLs: {error.strerror}")
    run(scenario, str(tmp_path))


@pytest.mark.torture
@pytest.mark.timeout(1200)
def test_60000_forged_generations_delay_nothing() -> None:
    sys.stdout.write(run("forged_generations", FORGED="60000"))
