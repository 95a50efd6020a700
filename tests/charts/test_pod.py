"""The rendered configuration at work, on volumes as the kubelet prepares them."""

import os
import stat
import subprocess
import sys
import time

import jwt
import pytest

from tests.charts.helm import ROOT, VALUES, config_of, pod_of, sidecar_of

GROUP = 65532 if os.geteuid() == 0 else os.getegid()


def volume(path):
    """A memory-backed emptyDir of a pod with fsGroup: root's, the group's, setgid, and open to all."""
    path.mkdir(parents=True)
    os.chown(path, -1, GROUP)
    path.chmod(0o2777)


@pytest.mark.parametrize("values", ["defaults", "aws-files-values"])
def test_the_agent_in_the_pod_delivers_what_the_workload_reads(helm, tmp_path, values):
    manifests = helm.template(*VALUES[values])
    pod = pod_of(manifests)
    for mount in sidecar_of(pod)["volumeMounts"]:
        if not mount.get("readOnly"):
            volume(tmp_path / mount["mountPath"].strip("/"))
    [projected] = [source["projected"]["sources"] for source in pod["volumes"] if "projected" in source]
    for source in projected:
        token = source["serviceAccountToken"]
        path = tmp_path / "var/run/secrets/wi-agent-tokens" / token["path"]
        path.parent.mkdir(parents=True)
        now = int(time.time())
        claims = {"iss": "https://cluster.example", "sub": "system:serviceaccount:demo:r", "aud": [token["audience"]], "iat": now}
        path.write_text(jwt.encode(claims | {"exp": now + token["expirationSeconds"]}, "k" * 32, "HS256"))
    text = manifests["ConfigMap"]["data"]["config.yaml"]
    config = tmp_path / "config.yaml"
    config.write_text(
        text.replace("/var/run/", f"{tmp_path}/var/run/").replace("/run/wi-agent/agent.sock", f"{tmp_path}/run/wi-agent/agent.sock")
    )
    done = subprocess.run(
        [sys.executable, "-m", "agent", "-c", str(config), "once", "--timeout", "20"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for identity in config_of(manifests)["identities"]:
        for sink in identity["sinks"]:
            directory = tmp_path / sink["directory"].strip("/")
            delivered = directory / sink.get("names", {}).get("token", "token")
            assert jwt.decode(delivered.read_text(), options={"verify_signature": False})["sub"] == "system:serviceaccount:demo:r"
            assert stat.S_IMODE(delivered.stat().st_mode) == int(sink.get("mode", "0640"), 8)
            assert stat.S_IMODE(directory.stat().st_mode) == 0o2750
            assert delivered.stat().st_gid == directory.stat().st_gid == GROUP
