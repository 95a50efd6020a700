"""The variables that the chart gives a container are those that `wi-agent env` prints for the same configuration."""

import os
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

from agent.config.loading import check
from agent.dialects import DIALECTS
from tests.charts.helm import CHART, ROOT, RefusedError, config_of, pod_of
from tests.docs.conftest import blocks

README = CHART / "README.md"
AUTHORIZATIONS = {"WI_AUTHORIZATION_VAULT_READER": "text-of-the-vault-reader", "WI_AUTHORIZATION_OSS_READER": "text-of-the-oss-reader"}
SOURCES = {
    "vault-reader": {"secretKeyRef": {"name": "vault-reader-authorization", "key": "authorization"}},
    "oss-reader": {"secretKeyRef": {"name": "authorizations", "key": "oss-reader"}},
}
IDENTITIES = [
    pytest.param(path, identity["name"], id=identity["name"])
    for path in sorted((CHART / "ci").glob("every-cloud*.yaml"))
    for identity in yaml.safe_load(path.read_text())["config"]["identities"]
]


@pytest.mark.parametrize(("values", "name"), IDENTITIES)
def test_an_sdk_is_led_to_the_identity_as_env_would(helm, tmp_path, values, name):
    manifests = helm.template("--values", str(values), "--set", f"workload.identity={name}")
    [workload] = [container for container in pod_of(manifests)["containers"] if container["name"] == "workload"]
    given = {}
    held = f"WI_AUTHORIZATION_{name.replace('-', '_').upper()}"
    for variable in workload["env"]:
        assert variable["name"] not in given
        if "valueFrom" in variable:
            assert variable["valueFrom"] == SOURCES[name]
        given[variable["name"]] = variable.get("value", f"$({held})")
    if given.pop(held, None):
        assert workload["env"][0]["name"] == held, "only variables above it are filled in"
    assert given == printed(tmp_path, config_of(manifests), name)


def printed(tmp_path, config, name):
    """What `env` says, without what only the container's owner knows: where its proxy is not to be used."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [sys.executable, "-m", "agent", "-c", str(tmp_path / "config.yaml"), "env", name, "--format", "yaml"],
        cwd=ROOT,
        env=AUTHORIZATIONS | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {variable["name"]: variable["value"] for variable in yaml.safe_load(done.stdout)}
    return {name: value for name, value in found.items() if name.lower() != "no_proxy"}


def test_every_dialect_has_its_variables_in_the_chart_and_no_other_is_taken():
    templates = (CHART / "templates" / "_variables.tpl").read_text()
    for dialect in DIALECTS:
        assert f'"workload-identity-agent.env.{dialect}"' in templates
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    serve = schema["properties"]["config"]["properties"]["identities"]["items"]["properties"]["serve"]["properties"]
    assert set(serve["dialects"]["items"]["enum"]) == set(DIALECTS)


@pytest.mark.parametrize(
    ("provider", "serve", "words"),
    [
        ({"type": "gcp", "gke": True, "audiences": ["p.svc.id.goog"]}, {"dialects": ["gce"]}, "demo: no path of gce names an identity"),
        ({"type": "gcp", "gke": True}, {}, "demo: state the provider's audiences"),
        ({"type": "aws", "fromServiceAccount": True, "region": "eu-west-1"}, {}, "demo: provider.roleArn is the ServiceAccount's to say"),
        ({"type": "azure", "fromServiceAccount": True}, {}, "demo: provider.clientId is the ServiceAccount's to say"),
    ],
)
def test_where_nothing_would_lead_an_sdk_there_the_chart_says_so(helm, tmp_path, provider, serve, words):
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"config": {"identities": [{"name": "demo", "provider": provider, "serve": serve}]}}))
    with pytest.raises(RefusedError) as refused:
        helm.template("--values", str(values))
    assert words in str(refused.value)


def test_alibabas_well_known_address_needs_no_url_and_a_socket_file_is_not_taken_for_one(helm, tmp_path):
    role = {"roleArn": "acs:ram::1234567890123456:role/r", "oidcProviderArn": "acs:ram::1234567890123456:oidc-provider/d"}
    identity = {"name": "demo", "provider": {"type": "alibaba", **role, "duration": "90m"}, "serve": {"dialects": ["ecs"], "default": True}}
    values = tmp_path / "values.yaml"
    listen = ["unix:/run/wi-agent/sdk.sock", "100.100.100.200:80"]
    values.write_text(yaml.safe_dump({"config": {"metadata": {"listen": listen}, "identities": [identity]}}))
    manifests = helm.template("--values", str(values))
    [workload] = [container for container in pod_of(manifests)["containers"] if container["name"] == "workload"]
    assert {variable["name"]: variable["value"] for variable in workload["env"]} == printed(tmp_path, config_of(manifests), "demo")


@pytest.mark.parametrize("text", [text for text in blocks(README, "yaml") if "apiVersion" not in text])
def test_the_values_in_the_charts_readme_render_to_what_the_agent_takes(helm, tmp_path, text):
    (tmp_path / "values.yaml").write_text(text)
    manifests = helm.template("--values", str(tmp_path / "values.yaml"))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config_of(manifests)))
    assert check(tmp_path / "config.yaml", AUTHORIZATIONS).faults == []


@pytest.mark.parametrize("text", [text for text in blocks(README, "yaml") if "apiVersion" in text])
def test_the_manifests_in_the_charts_readme_are_for_the_api_server(text):
    kubernetes_validate.validate(yaml.safe_load(text), kubernetes_validate.latest_version(), strict=True)


def test_the_charts_readme_names_every_dialect():
    assert all(f"`{dialect}`" in README.read_text() for dialect in DIALECTS)


def test_the_notes_say_who_is_served_without_being_asked_for_anything(helm, tmp_path):
    chart = shutil.copytree(CHART, tmp_path / CHART.name)
    (chart / "templates" / "notes.yaml").write_text(f'kind: Notes\ntext: {{{{ include "{CHART.name}/templates/NOTES.txt" . | quote }}}}\n')
    values = CHART / "ci" / "every-cloud-values.yaml"
    notes = helm.template("--values", str(values), chart=chart)["Notes"]["text"]
    for identity in yaml.safe_load(values.read_text())["config"]["identities"]:
        name, [dialect] = identity["name"], identity["serve"]["dialects"]
        assert (f"{name} is served as {dialect} to EVERY container" in notes) is not DIALECTS[dialect].authorized
        by_file = f"{name} is served to the containers that mount its volume" in notes
        by_secret = f"{name} is served to the containers that have its authorization from Secret" in notes
        assert (by_file or by_secret) is DIALECTS[dialect].authorized
        assert by_secret is (name in SOURCES)
