"""Helm, once for each test."""

import pytest

from tests.charts.helm import Helm


@pytest.fixture
def helm(tmp_path):
    home = tmp_path / "helm"
    home.mkdir()
    return Helm(home)
