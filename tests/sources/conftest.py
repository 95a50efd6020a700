"""Every test here may ask for a `cluster`."""

from tests.kube.fixtures import cluster, real_api_server

__all__ = ["cluster", "real_api_server"]
