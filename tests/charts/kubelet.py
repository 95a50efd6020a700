"""The volumes of a rendered pod as the kubelet prepares them, and the agent beside them as the container runtime starts it.

`python -m tests.charts.kubelet PLAN` under `unshare --mount`, as root: everything lies in memory that only this process sees, at
the paths that the pod says. Owners and modes as in Kubernetes' pkg/volume/util/atomic_writer.go and pkg/volume/volume_linux.go:
root's files of the volume's mode in a directory of 0755 behind `..data`, in a root directory open to all; with fsGroup, that group
everywhere, setgid on directories, and the group let in. PLAN is JSON: the pod's spec, the namespace's Secrets and ConfigMap, tokens.
The agent does `once`; where it has a hook, it does what the pod says, and is ended when the hook has. Where PLAN has requests, neighbours
send them to the running agent. The answer, on standard output, is JSON too: how that ended, and what lies in the sinks then.
"""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

VOLUMES = Path("/mnt")
ROOT = Path(__file__).parents[2]
AGENT = [sys.executable, "-m", "agent"]


def tmpfs(path, mode):
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode={mode:o}", "tmpfs", str(path)], check=True)


def opened(path):
    """Reachable for everybody: where a directory above is closed, such as root's home, one in memory takes its place."""
    closed = [parent for parent in reversed(path.parents) if not parent.stat().st_mode & stat.S_IXOTH]
    if closed:
        aside = VOLUMES / "aside"
        aside.mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", str(path), str(aside)], check=True)
        tmpfs(closed[0], 0o755)
        path.mkdir(parents=True)
        subprocess.run(["mount", "--move", str(aside), str(path)], check=True)


def projected(volume, files, mode):
    """`files` are bytes by relative path."""
    generation = volume / "..2026_11_21_11_06_28.1"
    for name, content in files.items():
        path = generation / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
    generation.mkdir(exist_ok=True)
    (volume / "..data").symlink_to(generation.name)
    for name in {Path(file).parts[0] for file in files}:
        (volume / name).symlink_to(f"..data/{name}")


def owned(volume, group, *, writable):
    for path in [volume, *volume.rglob("*")]:
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode) | (0o660 if writable else 0o440)
            os.chown(path, -1, group)
            path.chmod(mode | 0o2110 if path.is_dir() else mode)


def content(plan, volume):
    """(files by name, mode); None where the volume begins empty and may be written."""
    if "secret" in volume:
        secret = volume["secret"]
        found = plan["secrets"].get(secret["secretName"])
        assert found is not None or secret.get("optional"), f"the pod is not started: no Secret {secret['secretName']}"
        return {name: text.encode() for name, text in (found or {}).items()}, secret.get("defaultMode", 0o644)
    if "configMap" in volume:
        return {name: text.encode() for name, text in plan["config"].items()}, 0o644
    if "projected" in volume:
        tokens = [source["serviceAccountToken"] for source in volume["projected"]["sources"]]
        return {token["path"]: plan["tokens"][token["audience"]].encode() for token in tokens}, 0o644
    return None


def main(plan):
    pod = plan["pod"]
    [sidecar] = [one for one in (pod.get("initContainers") or []) + pod["containers"] if one["name"] == "wi-agent"]
    rights, group = sidecar["securityContext"], pod["securityContext"].get("fsGroup")
    tmpfs(VOLUMES, 0o755)
    for path in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
        opened(path.resolve())
    for volume in pod["volumes"]:
        place, files = VOLUMES / volume["name"], content(plan, volume)
        tmpfs(place, 0o1777)
        if files is not None:
            projected(place, *files)
        if group is not None:
            owned(place, group, writable=files is None)
    tmpfs(Path("/run"), 0o755)
    tmpfs(Path("/etc/wi-agent") if Path("/etc/wi-agent").exists() else _aside("/etc/wi-agent"), 0o755)
    for mount in sidecar["volumeMounts"]:
        Path(mount["mountPath"]).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", str(VOLUMES / mount["name"]), mount["mountPath"]], check=True)
        if mount.get("readOnly"):
            subprocess.run(["mount", "-o", "remount,bind,ro", mount["mountPath"]], check=True)
    inside = {
        "cwd": ROOT,
        "env": {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **environment(plan, sidecar)},
        "text": True,
        "user": rights["runAsUser"],
        "group": rights["runAsGroup"],
        "extra_groups": [] if group is None else [group],
    }
    if "requests" in plan:
        json.dump(answers(plan, sidecar, inside), sys.stdout)
        return
    if "lifecycle" in sidecar:
        json.dump(hooked(sidecar, inside), sys.stdout)
        return
    once = [*AGENT, "--log-format", "console", "once", "--timeout", str(plan["patience"])]
    done = subprocess.run(once, capture_output=True, check=False, **inside)
    json.dump({"exit": done.returncode, "said": done.stderr, "found": delivered()}, sys.stdout)


def hooked(sidecar, inside):
    """`exit` and `said` are the hook's; `found` is what there is when it ends, and `ended` how the agent did when it was told to."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _, *words = sidecar["lifecycle"]["postStart"]["exec"]["command"]
    with subprocess.Popen([*AGENT, *sidecar["args"]], stderr=subprocess.DEVNULL, **inside) as daemon:
        try:
            hook = subprocess.run([*AGENT, *words], capture_output=True, check=False, **inside)
            found = delivered()
            daemon.terminate()
            time.sleep(0.5)
            daemon.terminate()  # a second one, so that no delay is waited for
            ended = daemon.wait(10)
        finally:
            daemon.kill()
    return {"exit": hook.returncode, "said": hook.stderr, "found": found, "ended": ended}


def environment(plan, container):
    """The container's variables, with those from a Secret or the pod's own fields filled in."""
    found = {}
    for variable in container.get("env", []):
        source = variable.get("valueFrom", {})
        if secret := source.get("secretKeyRef"):
            found[variable["name"]] = plan["secrets"][secret["name"]][secret["key"]]
        elif source:
            assert source == {"fieldRef": {"fieldPath": "metadata.uid"}}
            found[variable["name"]] = plan["uid"]
        else:
            found[variable["name"]] = variable["value"]
    return found


def answers(plan, sidecar, inside):
    """`stranger`: what a container that was given nothing gets; `reader`: what one of the pod's group gets that mounts every identity."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts = VOLUMES / "var/lib/kubelet/pods" / plan["uid"] / "etc-hosts"  # as mountinfo shows it to every container of a pod
    hosts.parent.mkdir(parents=True)
    hosts.write_text("127.0.0.1 localhost\n")
    Path("/etc/hosts").touch()
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    clients = {"stranger": (1000, []), "reader": (65533, inside["extra_groups"])}
    found = {}
    with subprocess.Popen([*AGENT, *sidecar["args"]], **inside) as daemon:
        try:
            for name, (uid, groups) in clients.items():
                command = [sys.executable, "-m", "tests.charts.neighbour", json.dumps(plan["requests"])]
                rights = {"user": uid, "group": uid, "extra_groups": groups}
                done = subprocess.run(command, **{**inside, **rights}, stdout=subprocess.PIPE, check=True)
                found[name] = json.loads(done.stdout)
        finally:
            daemon.kill()
    return found


def delivered():
    """What lies in the sinks: text, mode, uid, gid."""
    found = {}
    for path in VOLUMES.glob("wi-id-*/*/*"):
        if path.is_file() and not path.name.startswith("."):
            state = path.stat()
            found[str(path.relative_to(VOLUMES))] = [path.read_text(), stat.S_IMODE(state.st_mode), state.st_uid, state.st_gid]
    return found


def _aside(path):
    """A place below /etc without leaving anything there: a copy in memory of what the agent needs of it lies over it."""
    kept = {name: Path("/etc", name).read_bytes() for name in ("passwd", "group", "nsswitch.conf") if Path("/etc", name).exists()}
    tmpfs(Path("/etc"), 0o755)
    for name, text in kept.items():
        Path("/etc", name).write_bytes(text)
    return Path(path)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
