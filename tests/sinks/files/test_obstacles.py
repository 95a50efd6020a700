"""What another user can put in the way of files that the agent makes."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.model import Secret
from agent.sinks.files import removal
from tests.sinks.files.grants_and_sinks import Bench, contents, make_grant
from tests.sinks.files.test_removal import DEEP, nest


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, removal.DIRECTORY_FLAGS)
    yield fd
    os.close(fd)
    subprocess.run(["find", str(tmp_path), "-mindepth", "1", "-delete"], check=True)  # pytest's own removal is recursive


async def test_deep_directories_in_the_way_stop_no_delivery(bench: Bench, root: int, tmp_path: Path) -> None:
    for name in ("..2020_01_01_00_00_00.deep", "..data_tmp", "..link_tmp", "..authorization_tmp"):
        nest(root, name, DEEP)
    sink = bench.sink(tmp_path)
    with capture_logs() as logs:
        await sink.retain("authorization", Secret("s3cret"))
        for number in (1, 2, 3):
            await sink.write(make_grant(number))
            assert await sink.read()
    assert contents(tmp_path)["token"].endswith("app.3")
    assert contents(tmp_path)["authorization"] == "s3cret"
    assert [(entry["event"], entry["count"]) for entry in logs] == [("leftover.kept", 4)]
