"""Helm, once for each test, and a real API server where there is one."""

import pytest

from tests.charts.helm import Helm
from tests.kube.fixtures import real_api_server

__all__ = ["real_api_server"]


@pytest.fixture
def helm(tmp_path):
    home = tmp_path / "helm"
    home.mkdir()
    return Helm(home)
