"""An issuer's keys, made as docs/issuer.md says, reach the agent from a Secret: with the owners and modes of a real volume."""

import json
import shutil
import subprocess
import sys
import time

import jwt
import pytest
import yaml

from tests.charts.helm import CHART, ROOT, VALUES, RefusedError, config_of, pod_of, sidecar_of
from tests.sinks.files.test_mounted_volumes import UNSHARE, obstacle

KEYS = VALUES["issuer-keys-values"]
MOUNT = "/var/run/secrets/wi-agent-issuer"
GROUP = 65532


@pytest.fixture
def keys(tmp_path):
    """The Secret's files, and the key set that is published of them."""
    block = yaml.safe_load((CHART / "ci" / "issuer-keys-values.yaml").read_text())["config"]["issuer"]
    (tmp_path / "keys.yaml").write_text(yaml.safe_dump({"issuer": {**block, "state": "state"}, "identities": []}))
    command = [sys.executable, "-m", "agent", "-c", "keys.yaml", "issuer", "export", "public"]
    subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=True, capture_output=True, timeout=30)
    files = {path.name: path.read_text() for path in (tmp_path / "state").iterdir()}
    return files, jwt.PyJWKSet.from_json((tmp_path / "public" / "jwks").read_text())


def started(tmp_path, manifests, secrets, *, patience=20.0):
    """How `once` ends in this pod, and what it leaves."""
    if why := obstacle() or ("" if shutil.which("ip") else "there is no ip command"):
        pytest.skip(why)
    now = int(time.time())
    claims = {"iss": "https://cluster.example", "sub": "system:serviceaccount:demo:r", "iat": now, "exp": now + 3600}
    tokens = {audience: jwt.encode({**claims, "aud": [audience]}, "k" * 32, "HS256") for audience in ["sts.amazonaws.com"]}
    plan = {"pod": pod_of(manifests), "secrets": secrets, "config": manifests["ConfigMap"]["data"], "tokens": tokens, "patience": patience}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [*UNSHARE, "--net", sys.executable, "-m", "tests.charts.kubelet", str(tmp_path / "plan.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_agent_signs_with_keys_that_are_roots_and_that_the_pods_group_may_read(helm, tmp_path, keys):
    files, published = keys
    left = started(tmp_path, helm.template(*KEYS), {"issuer-keys": files})
    assert left["exit"] == 0, left["said"]
    token, mode, owner, group = left["found"]["wi-id-reports/files/token"]
    claims = jwt.decode(
        token,
        published[jwt.get_unverified_header(token)["kid"]],
        algorithms=["RS256"],
        audience="billing",
        issuer="https://issuer.example.org/wi",
    )
    assert claims["sub"] == "system:serviceaccount:demo:reports"
    assert (mode, owner, group) == (0o640, 65532, GROUP)
    assert "wi-id-s3-reader/files/token" in left["found"]


def test_without_the_pods_group_the_keys_would_be_closed_to_the_agent(helm, tmp_path, keys):
    manifests = helm.template(*KEYS)
    del pod_of(manifests)["securityContext"]["fsGroup"]
    left = started(tmp_path, manifests, {"issuer-keys": keys[0]})
    assert left["exit"] == 2
    assert "index.json cannot be read: Permission denied" in left["said"]


def test_before_the_secret_is_there_other_identities_are_served_and_it_is_said_what_is_missing(helm, tmp_path):
    left = started(tmp_path, helm.template(*KEYS), {}, patience=3.0)
    assert left["exit"] == 3
    assert f"put index.json, and the keys that it names, into {MOUNT}" in left["said"]
    assert "wi-id-s3-reader/files/token" in left["found"]
    assert "wi-id-reports/files/token" not in left["found"]


def test_where_the_sidecar_is_no_native_one_the_hook_ends_when_all_of_it_is_delivered(helm, tmp_path, keys):
    left = started(tmp_path, helm.template(*KEYS, cluster="1.28.9"), {"issuer-keys": keys[0]})
    assert (left["exit"], left["said"]) == (0, "")
    assert {"wi-id-reports/files/token", "wi-id-s3-reader/files/token"} <= left["found"].keys()
    assert left["ended"] == 0


def test_the_hook_gives_up_where_something_is_missing_when_the_probe_would(helm, tmp_path):
    manifests = helm.template(*KEYS, "--set", "startupProbe.failureThreshold=3", cluster="1.28.9")
    left = started(tmp_path, manifests, {})
    assert left["exit"] == 3
    assert "reports" in left["said"]
    assert left["ended"] == 0


@pytest.mark.parametrize("cluster", ["1.37.0", "1.28.9"])
def test_the_keys_are_mounted_whole_and_for_the_agent_alone(helm, cluster):
    manifests = helm.template(*KEYS, cluster=cluster)
    pod = pod_of(manifests)
    [volume] = [volume for volume in pod["volumes"] if "secret" in volume]
    assert volume["secret"] == {"secretName": "issuer-keys", "defaultMode": 0o440, "optional": True}
    mounts = {
        container["name"]: mount
        for container in (pod.get("initContainers") or []) + pod["containers"]
        for mount in container["volumeMounts"]
        if mount["name"] == volume["name"]
    }
    assert mounts == {"wi-agent": {"name": volume["name"], "mountPath": MOUNT, "readOnly": True}}
    assert config_of(manifests)["issuer"] == {
        "url": "https://issuer.example.org/wi",
        "listen": [],
        "state": MOUNT,
        "readOnly": True,
    }
    assert volume["name"] not in {mount["name"] for mount in sidecar_of(pod_of(helm.template()))["volumeMounts"]}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("issuerKeys.secret=", "each pod would make keys of its own"),
        ("config.issuer.state=/tmp/keys", "leave state and readOnly out"),
        ("config.issuer.readOnly=false", "leave state and readOnly out"),
        ("config.issuer=null", "nothing signs with these keys"),
        ("issuerKeys.secret=Not_A_Name", "pattern"),
    ],
)
def test_keys_that_nobody_could_use_are_refused_with_the_reason(helm, settings, words):
    with pytest.raises(RefusedError, match=words):
        helm.template(*KEYS, "--set", settings)
