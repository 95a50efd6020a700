"""Pod Security Standards, level "restricted": what of a pod's specification that admission would refuse.

Written from kubernetes.io/docs/concepts/security/pod-security-standards, as of 1.35. An API server decides it itself from 1.25 on; this is
for where none that new is at hand.
"""

from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
}
SECCOMP = {"RuntimeDefault", "Localhost"}
SELINUX = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}


def violations(pod: dict[str, Any]) -> list[str]:
    """In the words `place: reason`; an empty list where the pod is let in."""
    rights = pod.get("securityContext") or {}
    found = [f"pod: {field}" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field)]
    found += [f"pod: sysctl {one['name']}" for one in rights.get("sysctls", ()) if one["name"] not in SYSCTLS]
    for volume in pod.get("volumes") or ():
        found += [f"volume {volume['name']}: {kind}" for kind in set(volume) - {"name"} - VOLUMES]
    found += _identity("pod", rights)
    for container in [*(pod.get("initContainers") or ()), *pod["containers"]]:
        found += _of(container, rights)
    return found


def _of(container: dict[str, Any], pod: dict[str, Any]) -> list[str]:
    name, rights = container["name"], container.get("securityContext") or {}
    capabilities = rights.get("capabilities") or {}
    wrong = {
        "privileged": rights.get("privileged"),
        "allowPrivilegeEscalation": rights.get("allowPrivilegeEscalation") is not False,
        "capabilities.drop": "ALL" not in capabilities.get("drop", ()),
        "capabilities.add": set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"},
        "procMount": rights.get("procMount", "Default") != "Default",
        "runAsNonRoot": rights.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True,
        "seccompProfile": (rights.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type") not in SECCOMP,
        "hostPort": any(port.get("hostPort") for port in container.get("ports", ())),
        "host of a probe or hook": any(_hosts(container)),
    }
    return [f"{name}: {reason}" for reason, is_wrong in wrong.items() if is_wrong] + _identity(name, rights)


def _identity(place: str, rights: dict[str, Any]) -> list[str]:
    labels = rights.get("seLinuxOptions") or {}
    wrong = {
        "runAsUser": rights.get("runAsUser") == 0,
        "seLinuxOptions": labels.get("type") not in SELINUX or labels.get("user") or labels.get("role"),
        "appArmorProfile": (rights.get("appArmorProfile") or {}).get("type") == "Unconfined",
        "hostProcess": (rights.get("windowsOptions") or {}).get("hostProcess"),
    }
    return [f"{place}: {reason}" for reason, is_wrong in wrong.items() if is_wrong]


def _hosts(container: dict[str, Any]) -> list[str]:
    asked = [container.get(probe) or {} for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    asked += list((container.get("lifecycle") or {}).values())
    return [action["host"] for one in asked for action in one.values() if isinstance(action, dict) and action.get("host")]
