"""Each test of the suite runs for every provider that there is, or for every one that exchanges."""

import importlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.subject import Cloud, Subject

NAMES = sorted(file.stem for file in (Path(__file__).parent / "clouds").glob("*.py"))
CLOUDS: dict[str, Cloud] = {name: importlib.import_module(f"tests.conformance.clouds.{name}").CLOUD for name in NAMES}


@pytest.fixture(params=NAMES)
def cloud(request: pytest.FixtureRequest) -> Cloud:
    """Every provider's."""
    return CLOUDS[request.param]


@pytest.fixture(params=[name for name in NAMES if CLOUDS[name].exchanges])
def exchanging(request: pytest.FixtureRequest) -> Cloud:
    """That of every provider which asks somebody."""
    return CLOUDS[request.param]


@pytest.fixture
async def subject(cloud: Cloud) -> AsyncIterator[Subject]:
    async with cloud.open() as one:
        yield one


@pytest.fixture
async def asked(exchanging: Cloud) -> AsyncIterator[Subject]:
    async with exchanging.open() as one:
        yield one
