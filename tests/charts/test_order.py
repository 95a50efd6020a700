"""When the agent starts and ends beside the pod's other containers, and what it is given to do so."""

import pytest

from agent.cli import _parser
from tests.charts.helm import RefusedError, pod_of, sidecar_of


@pytest.mark.parametrize(("cluster", "native"), [("1.37.0", True), ("1.29.0", True), ("1.28.9", False)])
def test_the_sidecar_is_a_native_one_where_the_cluster_has_them(helm, cluster, native):
    pod = pod_of(helm.template(cluster=cluster))
    assert [container["name"] for container in (pod.get("initContainers") or [])] == (["wi-agent"] if native else [])
    assert [container["name"] for container in pod["containers"]] == (["workload"] if native else ["wi-agent", "workload"])
    assert sidecar_of(pod).get("restartPolicy") == ("Always" if native else None)


@pytest.mark.parametrize(("said", "cluster", "native"), [("always", "1.28.9", True), ("never", "1.37.0", False)])
def test_what_is_said_of_native_sidecars_beats_what_the_cluster_says(helm, said, cluster, native):
    pod = pod_of(helm.template("--set", f"nativeSidecar={said}", cluster=cluster))
    assert ("initContainers" in pod) is native


def test_the_pod_starts_when_identities_are_delivered_and_its_readiness_is_not_the_agents(helm):
    sidecar = sidecar_of(pod_of(helm.template("--set", "config.admin.listen={:9999}")))
    assert [port["containerPort"] for port in sidecar["ports"] if port["name"] == "wi-admin"] == [9999]
    assert sidecar["startupProbe"]["httpGet"] == {"path": "/readyz", "port": "wi-admin"}
    assert sidecar["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "wi-admin"}
    assert "readinessProbe" not in sidecar


def test_without_native_sidecars_the_others_are_started_when_the_agents_hook_has_seen_every_required_identity(helm):
    probe = "startupProbe.initialDelaySeconds=5,startupProbe.periodSeconds=2,startupProbe.failureThreshold=10"
    sidecar = sidecar_of(pod_of(helm.template("--set", probe, cluster="1.28.9")))
    program, *arguments = sidecar["lifecycle"]["postStart"]["exec"]["command"]
    options = _parser().parse_args(arguments)
    assert (program, options.command, options.timeout) == ("wi-agent", ("client", "wait"), 25.0)
    assert str(options.config) == "/etc/wi-agent/config.yaml", "its socket may be another than the usual one"
    assert "lifecycle" not in sidecar_of(pod_of(helm.template()))


@pytest.mark.parametrize(
    ("delay", "grace", "fits"), [("28s", 30, True), ("29s", 30, False), ("1m", 62, True), ("1m", 61, False), ("1h", 30, False)]
)
def test_the_agent_is_given_the_time_that_its_delay_takes(helm, delay, grace, fits):
    settings = ["--set", f"config.shutdown.delay={delay}", "--set", f"workload.terminationGracePeriodSeconds={grace}"]
    if fits:
        assert pod_of(helm.template(*settings))["terminationGracePeriodSeconds"] == grace
    else:
        with pytest.raises(RefusedError, match=f"config.shutdown.delay: {delay} and 2 s to stop are more than"):
            helm.template(*settings)


def test_what_is_asked_for_has_room_for_what_the_agent_takes_and_the_limit_is_well_above(helm):
    resources = sidecar_of(pod_of(helm.template()))["resources"]
    asked, limit = (int(resources[one]["memory"].removesuffix("Mi")) for one in ("requests", "limits"))
    assert asked >= 85, "source kubernetes, as measured"
    assert limit >= 1.5 * asked, "idle connections, a second program for a moment, and files in memory"
