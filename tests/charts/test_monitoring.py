"""What the chart makes for the Prometheus operator."""

import shutil
import subprocess

import pytest
import yaml

from tests.charts.helm import ROOT, VALUES

AWS = VALUES["aws-endpoint-values"]


def test_the_pod_monitor_asks_the_port_of_the_pods_that_have_it(helm):
    assert "PodMonitor" not in helm.template()
    manifests = helm.template(*AWS)
    monitor = manifests["PodMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "wi-admin", "path": "/metrics", "interval": "30s"}
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_rules_for_the_operator_are_those_of_the_documents_and_only_where_asked_for(helm):
    assert "PrometheusRule" not in helm.template()
    rule = helm.template(*VALUES["issuer-keys-values"])["PrometheusRule"]
    assert rule["metadata"]["labels"]["role"] == "alert-rules"
    assert rule["spec"] == yaml.safe_load((ROOT / "docs" / "alerts.yaml").read_text())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Debian's prometheus")
def test_promtool_takes_the_operators_rules_and_they_fire_when_they_should(helm, tmp_path):
    rule = helm.template(*VALUES["issuer-keys-values"])["PrometheusRule"]
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(rule["spec"]))
    shutil.copy(ROOT / "tests" / "docs" / "alerts_story.yaml", tmp_path)
    for what in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_story.yaml"]):
        run = subprocess.run(["promtool", *what], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
        assert run.returncode == 0, run.stdout + run.stderr
    assert "WorkloadIdentityBroken" in (tmp_path / "alerts.yaml").read_text()
