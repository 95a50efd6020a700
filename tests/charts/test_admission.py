"""What the chart and the documents make is for clusters that hold pods to `restricted`, and a real API server takes it."""

import re
from pathlib import Path

import pytest
import yaml

from tests.charts.admission import ForbiddenError, Server
from tests.charts.helm import CHART, CLUSTERS, ROOT, VALUES, pod_of, sidecar_of
from tests.charts.restricted import violations
from tests.charts.test_chart import parent_chart
from tests.docs.conftest import PAPERS, blocks

README = CHART / "README.md"
MORE = {"legacy": ["address: capabilities.add", "address: runAsNonRoot", "address: runAsUser"]}
"""Pods of the documents that are more than `restricted` lets in, and why; they are not for such a namespace."""
DOCUMENTED = [
    pytest.param(manifest, id=f"{paper.relative_to(ROOT)}: {manifest['kind']} {manifest['metadata']['name']}")
    for paper in [README, *PAPERS, *sorted((ROOT / "docs" / "rbac").glob("*.yaml"))]
    for text in ([paper.read_text()] if paper.suffix == ".yaml" else blocks(paper, "yaml"))
    if re.search(r"^apiVersion: .*\nkind: [A-Z]", text, re.MULTILINE)
    for manifest in yaml.safe_load_all(text)
]
EXAMPLES = VALUES | {f"README {number}": text for number, text in enumerate(blocks(README, "yaml")) if "apiVersion" not in text}


@pytest.fixture(scope="session")
def server(real_api_server):
    port, _, ca = real_api_server
    server = Server(port, ca)
    server.furnish()
    return server


@pytest.fixture
def namespace(server):
    return server.namespace("restricted")


@pytest.fixture
def render(helm, tmp_path):
    """The manifests of one example, by kind."""

    def rendered(example, cluster):
        arguments = EXAMPLES[example]
        if isinstance(arguments, str):
            (tmp_path / "values.yaml").write_text(arguments)
            arguments = ["--values", str(tmp_path / "values.yaml")]
        return helm.template(*arguments, *([] if cluster != "1.28.9" else ["--set", "nativeSidecar=never"]), cluster=cluster)

    return rendered


def dependents_pod(helm, tmp_path, cluster):
    """The pod that _sidecar.tpl begins with, with the rights that its owner has to give it."""
    pod = helm.template(chart=parent_chart(tmp_path), cluster=cluster)["Pod"]
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": 1000}
    pod["spec"]["containers"][-1]["securityContext"] = rights
    return pod


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("example", [name for name in EXAMPLES if name != "library-values"])
def test_the_pod_of_every_example_is_a_restricted_one(render, example, cluster):
    assert violations(pod_of(render(example, cluster))) == []


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_sidecar_does_not_keep_a_restricted_pod_from_being_one(helm, tmp_path, cluster):
    assert violations(dependents_pod(helm, tmp_path, cluster)["spec"]) == []


@pytest.mark.parametrize("manifest", [one for one in DOCUMENTED if one.values[0]["kind"] == "Pod"])
def test_the_pods_of_the_documents_are_restricted_ones_but_for_what_is_said_of_them(manifest):
    assert violations(manifest["spec"]) == MORE.get(manifest["metadata"]["name"], [])


@pytest.mark.parametrize(
    ("worse", "reason"),
    [
        ({"runAsNonRoot": False}, "runAsNonRoot"),
        ({"runAsUser": 0}, "runAsUser"),
        ({"allowPrivilegeEscalation": True}, "allowPrivilegeEscalation"),
        ({"privileged": True}, "privileged"),
        ({"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}, "capabilities.add"),
        ({"capabilities": {}}, "capabilities.drop"),
        ({"seccompProfile": {"type": "Unconfined"}}, "seccompProfile"),
    ],
)
def test_a_sidecar_that_may_more_would_be_seen(helm, worse, reason):
    pod = pod_of(helm.template())
    sidecar_of(pod)["securityContext"].update(worse)
    assert violations(pod) == [f"wi-agent: {reason}"]


def test_a_pod_that_may_more_would_be_seen(helm):
    pod = pod_of(helm.template())
    pod["volumes"].append({"name": "node", "hostPath": {"path": "/"}})
    pod["hostPID"] = True
    pod["securityContext"]["sysctls"] = [{"name": "kernel.msgmax", "value": "1"}]
    sidecar_of(pod)["livenessProbe"]["httpGet"]["host"] = "169.254.169.254"
    found = ["pod: hostPID", "pod: sysctl kernel.msgmax", "volume node: hostPath", "wi-agent: host of a probe or hook"]
    assert violations(pod) == found


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_real_api_server_creates_every_manifest_of_every_example_and_its_pod(render, server, example):
    for cluster in server.clusters:
        namespace, manifests = server.namespace("restricted"), render(example, cluster)
        for kind in sorted(manifests, key=lambda kind: (kind == "Deployment", kind)):  # a pod's ServiceAccount comes before it
            assert server.create(manifests[kind], namespace) == [], kind


def test_a_real_api_server_creates_the_pod_of_a_chart_that_depends_on_this_one(helm, server, tmp_path):
    for number, cluster in enumerate(server.clusters):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert server.create(dependents_pod(helm, folder, cluster), server.namespace("restricted")) == []


@pytest.mark.parametrize("manifest", DOCUMENTED)
def test_a_real_api_server_creates_the_manifests_of_the_documents_as_they_stand(server, namespace, manifest):
    if manifest["metadata"]["name"] in MORE:
        if server.strict:
            with pytest.raises(ForbiddenError, match='violates PodSecurity "restricted'):
                server.create(manifest, namespace)
        namespace = server.namespace("privileged")
    assert server.create(manifest, namespace) == []


def test_the_documents_that_have_manifests_are_looked_through():
    papers = {Path(parameter.id.split(":")[0]) for parameter in DOCUMENTED}
    assert {README.relative_to(ROOT), Path("docs/files.md"), Path("docs/rbac.md"), Path("docs/rbac/token.yaml")} <= papers


def test_what_makes_no_sense_is_refused_there(render, server, namespace):
    manifests = render("issuer-keys-values", "1.28.9")
    pod = pod_of(manifests)
    [sidecar] = [container for container in pod["containers"] if container["name"] == "wi-agent"]
    server.create(manifests["ServiceAccount"], namespace)
    sidecar["securityContext"]["runAsUser"] = -1
    sidecar["volumeMounts"][0]["name"] = "nowhere"
    with pytest.raises(ForbiddenError, match="must be between 0 and 2147483647") as refused:
        server.create(manifests["Deployment"], namespace)
    assert 'Not found: "nowhere"' in str(refused.value)


def test_a_rule_or_a_monitor_with_a_wrong_value_is_refused_there(helm, server, namespace):
    manifests = helm.template(*VALUES["issuer-keys-values"])
    manifests["PrometheusRule"]["spec"]["groups"][0]["rules"][0]["for"] = "soon"
    manifests["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["interval"] = "soon"
    for kind in ("PrometheusRule", "PodMonitor"):
        with pytest.raises(ForbiddenError, match="should match"):
            server.create(manifests[kind], namespace)
