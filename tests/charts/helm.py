"""Real Helm, from the package `helm-binary`, with the chart rendered as a cluster of some version would have it."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "charts" / "workload-identity-agent"
CLUSTERS = ["1.37.0", "1.29.0", "1.28.9"]
"""The newest, the first with native sidecars, the last without."""
VALUES = {"defaults": [], **{path.stem: ["--values", str(path)] for path in sorted((CHART / "ci").glob("*.yaml"))}}


class RefusedError(Exception):
    """Helm's own words."""


class Helm:
    """One test's, with nothing of the user's and nothing left behind."""

    def __init__(self, home: Path) -> None:
        program = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
        if program is None:
            pytest.skip("there is no helm: it comes with the package helm-binary")
        self._program = program
        self._environment = {
            "HOME": str(home),
            "PATH": "",
            "HELM_CACHE_HOME": str(home),
            "HELM_CONFIG_HOME": str(home),
            "HELM_DATA_HOME": str(home),
        }

    def run(self, *arguments: str) -> str:
        done = subprocess.run([self._program, *arguments], env=self._environment, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode:
            raise RefusedError(done.stdout + done.stderr)
        return done.stdout

    def template(self, *arguments: str, chart: Path = CHART, cluster: str = CLUSTERS[0], release: str = "r") -> dict[str, dict[str, Any]]:
        """The manifests by kind; a kind that comes twice is an error."""
        text = self.run("template", release, str(chart), "--namespace", "demo", "--kube-version", cluster, *arguments)
        manifests = [manifest for manifest in yaml.safe_load_all(text) if manifest]
        found = {manifest["kind"]: manifest for manifest in manifests}
        assert len(found) == len(manifests)
        return found


def pod_of(manifests: dict[str, Any]) -> dict[str, Any]:
    """The Deployment's pod."""
    return manifests["Deployment"]["spec"]["template"]["spec"]


def sidecar_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The agent, wherever it stands."""
    [sidecar] = [container for container in (pod.get("initContainers") or []) + pod["containers"] if container["name"] == "wi-agent"]
    return sidecar


def config_of(manifests: dict[str, Any]) -> dict[str, Any]:
    """The agent's configuration."""
    return yaml.safe_load(manifests["ConfigMap"]["data"]["config.yaml"])
