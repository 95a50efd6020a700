"""The trimmed data is botocore's own, and says the same."""

import runpy
from pathlib import Path

import botocore.session
import pytest
from botocore.loaders import Loader

from agent.providers.aws.regions import DATA, partition, sts_host

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "trim_botocore.py"


def test_the_trimmed_data_is_what_the_installed_botocore_gives() -> None:
    assert {str(file.relative_to(DATA)): file.read_text() for file in DATA.rglob("*.json")} == runpy.run_path(str(SCRIPT))["trimmed"]()


def test_every_region_that_botocore_knows_has_the_host_that_botocore_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_STS_REGIONAL_ENDPOINTS", "regional")
    session = botocore.session.Session()
    session.register_component("data_loader", Loader(extra_search_paths=[str(DATA)], include_default_search_paths=False))
    resolver = session._get_internal_component("endpoint_resolver")
    regions = {(name, region) for name in resolver.get_available_partitions() for region in resolver.get_available_endpoints("sts", name)}
    assert len(regions) > 30
    for name, region in regions:
        assert partition(region) == name
        assert sts_host(region) == resolver.construct_endpoint("sts", region)["hostname"]
