"""What the chart makes of its values."""

import json
import re
import shutil

import kubernetes_validate
import pytest
import yaml

from agent import __version__
from agent.cli import _parser
from agent.config.loading import check
from agent.config.model import Config, Identity
from tests.charts.helm import CHART, CLUSTERS, VALUES, Helm, RefusedError, config_of, pod_of, sidecar_of

NEWEST = kubernetes_validate.latest_version()
MESHES = ["traffic.sidecar.istio.io/excludeInboundPorts", "config.linkerd.io/skip-inbound-ports"]
AWS = VALUES["aws-endpoint-values"]
FILES = VALUES["aws-files-values"]
AUTHORIZATIONS = {"WI_AUTHORIZATION_VAULT_READER": "text-of-the-vault-reader", "WI_AUTHORIZATION_OSS_READER": "text-of-the-oss-reader"}


def environment(container):
    return {variable["name"]: variable.get("value") or variable["valueFrom"]["fieldRef"]["fieldPath"] for variable in container["env"]}


@pytest.mark.parametrize("values", VALUES)
def test_helm_finds_nothing_to_say_about_the_chart(helm, values):
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), *VALUES[values])


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("values", VALUES)
def test_the_newest_api_server_would_take_every_manifest(helm, values, cluster):
    manifests = helm.template(*VALUES[values], cluster=cluster)
    for kind in ("PodMonitor", "PrometheusRule"):  # the Prometheus operator's, of which kubernetes-validate knows nothing
        manifests.pop(kind, None)
    assert "ConfigMap" in manifests
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, NEWEST, strict=True)


def test_a_manifest_with_a_wrong_field_would_be_seen(helm):
    deployment = helm.template()["Deployment"]
    sidecar_of(deployment["spec"]["template"]["spec"])["startupProbe"]["patience"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, NEWEST, strict=True)


@pytest.mark.parametrize("values", VALUES)
def test_the_agent_takes_the_rendered_configuration(helm, tmp_path, values):
    path = tmp_path / "config.yaml"
    path.write_text(helm.template(*VALUES[values])["ConfigMap"]["data"]["config.yaml"])
    verdict = check(path, AUTHORIZATIONS)
    assert verdict.faults == []
    assert verdict.config is not None


def test_a_configuration_that_the_agent_refuses_would_be_seen(helm, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(helm.template("--set", "config.refresh.at=7")["ConfigMap"]["data"]["config.yaml"])
    assert check(path, AUTHORIZATIONS).faults


@pytest.mark.parametrize("values", [name for name in VALUES if name != "library-values"])
def test_no_container_may_do_more_than_it_has_to(helm, values):
    pod = pod_of(helm.template(*VALUES[values]))
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["fsGroup"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & pod.keys()
    for container in (pod.get("initContainers") or []) + pod["containers"]:
        rights = container["securityContext"]
        assert rights["runAsNonRoot"] is True
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
    sidecar = sidecar_of(pod)
    assert sidecar["securityContext"]["runAsUser"] == 65532
    assert sidecar["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert sidecar["resources"]["requests"]["memory"] == "96Mi"


def test_the_workload_has_another_uid_so_that_files_are_kept_from_it_by_mode(helm):
    pod = pod_of(helm.template())
    [workload] = [container for container in pod["containers"] if container["name"] == "workload"]
    assert workload["securityContext"]["runAsUser"] != sidecar_of(pod)["securityContext"]["runAsUser"]


def test_kubectl_shows_the_workload_where_no_container_is_named_and_the_annotations_are_added_to(helm):
    for cluster in CLUSTERS:
        annotations = helm.template("--set", "workload.podAnnotations.team=a", cluster=cluster)["Deployment"]["spec"]["template"][
            "metadata"
        ]["annotations"]
        assert annotations == {"kubectl.kubernetes.io/default-container": "workload", "team": "a", **dict.fromkeys(MESHES, "9481")}


def test_a_mesh_keeps_away_from_every_metadata_port_and_from_what_else_is_said(helm, tmp_path):
    values = tmp_path / "values.yaml"
    served = {"dialects": ["imds"], "port": 9490}
    aws = {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/a", "region": "eu-west-1"}
    listen = ["127.0.0.1:9481", "[::1]:9481", "unix:/run/wi-agent/sdk.sock", "169.254.169.254:80"]
    values.write_text(
        yaml.safe_dump(
            {
                "config": {"metadata": {"listen": listen}, "identities": [{"name": "demo", "provider": aws, "serve": served}]},
                "workload": {"podAnnotations": {MESHES[0]: "8080"}},
            }
        )
    )
    annotations = helm.template("--values", str(values))["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations[MESHES[0]] == "9481,80,9490,8080"
    assert annotations[MESHES[1]] == "9481,80,9490"


def test_the_agent_understands_the_arguments_it_is_given(helm):
    options = _parser().parse_args(sidecar_of(pod_of(helm.template("--set", "logging.level=debug")))["args"])
    assert options.command == ("daemon", "run")
    assert (options.log_level, options.log_format) == ("debug", "json")


def test_everything_written_lies_in_memory_and_everything_mounted_is_a_volume(helm):
    pod = pod_of(helm.template(*FILES))
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert len(volumes) == len(pod["volumes"])
    assert all(
        volume["emptyDir"]["medium"] == "Memory" and volume["emptyDir"]["sizeLimit"] for volume in volumes.values() if "emptyDir" in volume
    )
    for container in (pod.get("initContainers") or []) + pod["containers"]:
        for mount in container["volumeMounts"]:
            assert mount["name"] in volumes
            assert "subPath" not in mount, "a subPath never sees a swap"
            assert mount.get("readOnly") or "emptyDir" in volumes[mount["name"]]
    assert {mount["name"] for mount in sidecar_of(pod)["volumeMounts"]} == set(volumes)


def test_a_workload_mounts_its_own_identity_only_and_cannot_write_there(helm):
    pod = pod_of(helm.template(*FILES))
    [workload] = [container for container in pod["containers"] if container["name"] == "workload"]
    [mount] = workload["volumeMounts"]
    assert mount["mountPath"] == "/var/run/secrets/wi-agent/reports.s3-writer"
    assert mount["readOnly"] is True
    [agents] = [mounted for mounted in sidecar_of(pod)["volumeMounts"] if mounted["name"] == mount["name"]]
    assert agents["mountPath"] == mount["mountPath"]
    assert not agents.get("readOnly")


def test_every_files_sink_lies_on_its_identitys_volume(helm):
    manifests = helm.template(*FILES)
    mounted = {mount["mountPath"] for mount in sidecar_of(pod_of(manifests))["volumeMounts"]}
    for identity in config_of(manifests)["identities"]:
        for sink in identity["sinks"]:
            assert any(sink["directory"].startswith(f"{path}/") for path in mounted if path.endswith(f"/{identity['name']}"))


def test_a_token_is_projected_where_the_configuration_reads_it_for_whom_the_provider_wants_it(helm):
    manifests = helm.template(*AWS)
    pod = pod_of(manifests)
    [identity] = config_of(manifests)["identities"]
    [projected] = [volume for volume in pod["volumes"] if "projected" in volume]
    [token] = [source["serviceAccountToken"] for source in projected["projected"]["sources"]]
    [where] = [mount["mountPath"] for mount in sidecar_of(pod)["volumeMounts"] if mount["name"] == projected["name"]]
    assert identity["source"] == {"type": "file", "path": f"{where}/{token['path']}"}
    assert token["audience"] == "sts.amazonaws.com"
    assert token["expirationSeconds"] == 3600


def test_a_source_that_is_given_gets_no_projected_token(helm):
    pod = pod_of(helm.template(*FILES))
    [projected] = [volume["projected"] for volume in pod["volumes"] if "projected" in volume]
    assert [source["serviceAccountToken"]["path"] for source in projected["sources"]] == ["reports.s3-writer/token"]


def test_what_the_api_server_takes_is_given_to_the_agent_alone_and_only_where_it_asks_there(helm, tmp_path):
    assert "wi-api" not in {volume["name"] for volume in pod_of(helm.template(*AWS))["volumes"]}
    source = {"type": "kubernetes", "serviceAccount": {"namespace": "demo", "name": "app"}, "boundTo": "pod"}
    provider = {"type": "aws", "fromServiceAccount": True, "region": "eu-west-1"}
    identity = {"name": "demo.app", "source": source, "provider": provider, "serve": {"dialects": ["container"]}}
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"config": {"identities": [identity]}, "workload": {"identity": "demo.app"}}))
    manifests = helm.template("--values", str(values))
    kubernetes_validate.validate(manifests["Deployment"], NEWEST, strict=True)
    pod = pod_of(manifests)
    assert pod["automountServiceAccountToken"] is False
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "wi-api"]
    files = [item["path"] for one in volume["projected"]["sources"] for kind in one.values() for item in kind.get("items", [kind])]
    assert files == ["token", "ca.crt", "namespace"]
    [mount] = [mount for mount in sidecar_of(pod)["volumeMounts"] if mount["name"] == "wi-api"]
    assert mount == {"name": "wi-api", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    assert {"POD_NAME", "POD_NAMESPACE", "POD_UID"} <= environment(sidecar_of(pod)).keys()
    [workload] = pod["containers"]
    assert "wi-api" not in {mount["name"] for mount in workload["volumeMounts"]}


def test_an_aws_sdk_reads_the_authorization_from_its_identitys_volume(helm):
    manifests = helm.template(*AWS)
    pod = pod_of(manifests)
    assert "env" not in sidecar_of(pod)
    assert config_of(manifests)["identities"][0]["serve"] == {"dialects": ["container"]}
    [workload] = pod["containers"]
    assert environment(workload) == {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9481/aws/s3-reader/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/var/run/secrets/wi-agent/s3-reader/files/authorization",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }


def test_an_identity_that_is_not_served_leads_sdks_to_its_files_and_to_them_only(helm):
    [workload] = pod_of(helm.template(*FILES))["containers"]
    assert environment(workload) == {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reports/s3-writer",
        "AWS_ROLE_SESSION_NAME": "reports",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/wi-agent/reports.s3-writer/files/token",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "HOME": "/tmp",
    }


def test_two_names_that_differ_by_a_dot_do_not_share_a_volume(helm):
    provider = {"type": "generic", "audiences": ["x"]}
    names = ["a.b", "a-b", "run", "config", "tokens", "n" * 60, "n" * 61]
    identities = json.dumps([{"name": name, "provider": provider} for name in names])
    manifests = helm.template("--set-json", f"config.identities={identities}", "--set", "workload.identity=a.b")
    volumes = [volume["name"] for volume in pod_of(manifests)["volumes"]]
    assert len(set(volumes)) == len(volumes) == len(names) + 3
    kubernetes_validate.validate(manifests["Deployment"], NEWEST, strict=True)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", volume) for volume in volumes)


IDENTITY = "config.identities[0].name=demo,config.identities[0].provider.type={}"
REFUSED = {
    "the node's network": (["hostNetwork=true"], "hostNetwork: every process of the node"),
    "an unknown value": (["hostNetworks=true"], "hostNetworks"),
    "an unknown block of the configuration": (["config.identites=1"], "identites"),
    "probes that reach nothing": (["config.admin.listen={127.0.0.1:9480}"], "write :9480"),
    "an identity that is not there": (["workload.identity=nobody"], 'no identity "nobody"'),
    "an audience nobody knows": ([IDENTITY.format("generic")], "state the provider's audiences"),
    "a secret in a ConfigMap": (
        [
            IDENTITY.format("aws"),
            "config.identities[0].serve.dialects={container}",
            "config.identities[0].serve.authorization=hunter2hunter2hunter2",
        ],
        "leave serve.authorization out",
    ),
    "an authorization from nowhere": (
        [
            "config.identities[0].name=demo",
            "config.identities[0].provider.type=azure",
            "config.identities[0].serve.dialects={appservice}",
        ],
        "demo: its SDKs take the authorization from the environment",
    ),
    "an authorization for an open dialect": (
        [IDENTITY.format("aws"), "config.identities[0].serve.dialects={imds}", "authorizations.demo.secret=a"],
        "no identity of that name is served",
    ),
    "the pod's UID where a file can be read": (
        [IDENTITY.format("aws"), "config.identities[0].serve.dialects={container}", "authorizations.demo.podUid=true"],
        "AWS SDKs read a file",
    ),
    "two authorizations": (
        [
            IDENTITY.format("azure"),
            "config.identities[0].serve.dialects={appservice}",
            "authorizations.demo.podUid=true",
            "authorizations.demo.secret=a",
        ],
        "choose one of secret and podUid",
    ),
    "files that lie on no volume": (
        [IDENTITY.format("aws"), "config.identities[0].sinks[0].type=files,config.identities[0].sinks[0].directory=/tmp/x"],
        "has to lie below /var/run/secrets/wi-agent/demo",
    ),
    "files on another identity's volume": (
        [
            IDENTITY.format("aws"),
            "config.identities[0].sinks[0].type=files,config.identities[0].sinks[0].directory=/var/run/secrets/wi-agent/demo2/x",
        ],
        "has to lie below /var/run/secrets/wi-agent/demo",
    ),
    "a monitor of no pods": (["podMonitor.enabled=true,workload.enabled=false"], "say which pods have the sidecar"),
    "a token too short for the API server": (["tokenExpirationSeconds=60"], "tokenExpirationSeconds"),
    "a latest image by digest that is none": (["image.digest=latest"], "digest"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_work_is_refused_with_its_reason(helm, what):
    settings, words = REFUSED[what]
    with pytest.raises(RefusedError) as refused:
        helm.template(*(argument for setting in settings for argument in ("--set", setting)))
    assert words in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_an_authorization_without_a_file_to_be_stored_in_is_refused(helm):
    identity = {"name": "demo", "provider": {"type": "aws"}, "serve": {"dialects": ["container"]}, "sinks": []}
    with pytest.raises(RefusedError, match="demo: its authorization is stored beside its files and sinks is empty"):
        helm.template("--set-json", f"config.identities={json.dumps([identity])}")


def parent_chart(folder):
    """A chart with this one as a dependency and the pod that `_sidecar.tpl` begins with."""
    parent = folder / "parent"
    (parent / "templates").mkdir(parents=True)
    shutil.copytree(CHART, parent / "charts" / CHART.name)
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 1.0.0\n")
    values = yaml.safe_load((CHART / "ci" / "library-values.yaml").read_text()) | {
        "nativeSidecar": "auto",
        "config": {
            "identities": [
                {"name": "app", "provider": {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/a", "region": "eu-west-1"}}
            ]
        },
    }
    (parent / "values.yaml").write_text(yaml.safe_dump({CHART.name: values}))
    example = (CHART / "templates" / "_sidecar.tpl").read_text().split("{{/*")[1].split("*/}}")[0]
    body = "".join(f"{line.removeprefix('  ')}\n" for line in example.splitlines() if line.startswith("  "))
    head, spec = body.split("spec:\n")
    indented = spec.replace("name: app\n", "name: app\n      image: app:1\n")
    named = head.replace("metadata:\n", "metadata:\n  name: app\n")
    (parent / "templates" / "pod.yaml").write_text(f"{named}apiVersion: v1\nkind: Pod\nspec:\n{indented}")
    return parent


def test_a_chart_that_depends_on_this_one_puts_the_sidecar_into_its_own_pod(helm: Helm, tmp_path):
    parent = parent_chart(tmp_path)
    for cluster in CLUSTERS:
        manifests = helm.template(chart=parent, cluster=cluster)
        assert set(manifests) == {"ConfigMap", "Pod"}
        kubernetes_validate.validate(manifests["Pod"], NEWEST, strict=True)
        pod = manifests["Pod"]["spec"]
        assert {mount["name"] for mount in sidecar_of(pod)["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        [volume] = [volume for volume in pod["volumes"] if "configMap" in volume]
        assert volume["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]
        assert [container["name"] for container in pod["containers"]] == (["app"] if pod.get("initContainers") else ["wi-agent", "app"])
        assert environment(pod["containers"][-1])["AWS_ROLE_ARN"] == "arn:aws:iam::123456789012:role/a"
        assert manifests["Pod"]["metadata"]["annotations"].keys() == set(MESHES)


def test_the_outline_of_the_configuration_is_the_agents():
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]
    assert set(properties) == set(Config.__struct_encode_fields__)
    assert set(properties["identities"]["items"]["properties"]) == set(Identity.__struct_encode_fields__)


def test_every_value_has_its_default_beside_its_reason():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    for name in ("image", "logging", "workload", "serviceAccount", "podMonitor", "issuerKeys", "prometheusRule"):
        assert set(schema["properties"][name]["properties"]) == set(values[name])


def test_the_chart_is_the_agents_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
