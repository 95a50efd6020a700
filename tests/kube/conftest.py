"""Every test here may ask for a `cluster`, or for a `scene` in one."""

from tests.kube.fixtures import cluster, real_api_server
from tests.kube.scene import scene

__all__ = ["cluster", "real_api_server", "scene"]
