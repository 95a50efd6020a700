"""Fixtures of the sinks' tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.sinks.files.grants_and_sinks import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench(FakeClock())
    yield bench
    for sink in bench.sinks:
        await sink.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "identities" / "app"
