"""Which container of the pod the metadata endpoint serves: the real agent on the chart's volumes, asked by its neighbours."""

import json
import shutil
import subprocess
import sys
import time

import jwt
import pytest
import yaml

from tests.charts.helm import ROOT, pod_of
from tests.sinks.files.test_mounted_volumes import UNSHARE, obstacle

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
ROLES = {
    "aws": {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/r", "region": "eu-west-1"},
    "azure": {"type": "azure", "tenantId": UID, "clientId": UID},
    "alibaba": {
        "type": "alibaba",
        "roleArn": "acs:ram::1234567890123456:role/r",
        "oidcProviderArn": "acs:ram::1234567890123456:oidc-provider/d",
    },
}
DIALECTS = {
    "container": ("aws", "/aws/NAME/credentials", "Authorization"),
    "appservice": ("azure", "/azure/NAME/token?resource=https://management.azure.com/&api-version=2019-08-01", "X-IDENTITY-HEADER"),
    "uri": ("alibaba", "/alibaba/NAME/AUTHORIZATION/credentials", None),
}
NAMES = {f"{dialect}-{number}": dialect for dialect in DIALECTS for number in ("one", "two")}
ENVIRONMENT = {name: dialect for name, dialect in NAMES.items() if dialect != "container"}


def answered(helm, tmp_path, authorizations):
    """Statuses by client, identity, and where the client found the authorization."""
    if why := obstacle() or ("" if shutil.which("ip") else "there is no ip command"):
        pytest.skip(why)
    identities = [
        {"name": name, "provider": ROLES[DIALECTS[dialect][0]], "serve": {"dialects": [dialect]}} for name, dialect in NAMES.items()
    ]
    values = {"config": {"identities": identities}, "authorizations": authorizations, "workload": {"identity": "container-one"}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    manifests = helm.template("--values", str(tmp_path / "values.yaml"))
    now = int(time.time())
    claims = {"iss": "https://cluster.example", "sub": "system:serviceaccount:demo:r", "iat": now, "exp": now + 3600}
    audiences = ["sts.amazonaws.com", "api://AzureADTokenExchange", "sts.aliyuncs.com"]
    plan = {
        "pod": pod_of(manifests),
        "uid": UID,
        "secrets": {"texts": {name: f"the-secret-text-of-{name}" for name in ENVIRONMENT}},
        "config": manifests["ConfigMap"]["data"],
        "tokens": {audience: jwt.encode({**claims, "aud": [audience]}, "k" * 32, "HS256") for audience in audiences},
        "requests": {name: [DIALECTS[dialect][1].replace("NAME", name), DIALECTS[dialect][2]] for name, dialect in NAMES.items()},
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [*UNSHARE, "--net", sys.executable, "-m", "tests.charts.kubelet", str(tmp_path / "plan.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_pods_uid_and_a_neighbours_text_open_no_closed_dialect(helm, tmp_path):
    found = answered(helm, tmp_path, {name: {"secret": "texts", "key": name} for name in ENVIRONMENT})
    assert found["stranger"] == {name: {"": 401, "uid": 401} for name in NAMES}
    assert {name: codes["uid"] for name, codes in found["reader"].items()} == dict.fromkeys(NAMES, 401)
    files = {"container-one", "container-two"}
    for name, codes in found["reader"].items():
        assert codes.keys() == files | {"", "uid"}
        assert {where for where in files if codes[where] != 401} == files & {name}


def test_the_pods_uid_opens_an_identity_to_every_container_where_asked_for(helm, tmp_path):
    found = answered(helm, tmp_path, {name: {"podUid": True} for name in list(ENVIRONMENT)})
    for name, dialect in NAMES.items():
        assert (found["stranger"][name]["uid"] == 401) is (dialect == "container")
