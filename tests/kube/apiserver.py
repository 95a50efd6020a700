"""A real kube-apiserver over a real etcd, from $KUBEBUILDER_ASSETS (envtest's convention), one for all workers of a test run.

Whoever needs it first starts `python -m tests.kube.apiserver FOLDER`, which ends both servers when the last process that
registered in FOLDER is gone, however it went.
"""

import fcntl
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.servers.tls import certificate

ADMIN = "admin-of-the-test"
"""The token of a member of system:masters."""
ISSUER = "https://kubernetes.default.svc"
PATIENCE = 90.0
"""Seconds for a start on a machine that does other things too; alone it takes 5 to 10."""


def assets():
    """The folder with both programs; None where there is none."""
    found = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(found) if found and (Path(found) / "kube-apiserver").exists() else None


@contextmanager
def _locked(folder):
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def running(folder):
    """The server's port, its etcd's, and its CA file; running while this is held."""
    (folder / "users").mkdir(parents=True, exist_ok=True)
    user = folder / "users" / f"{os.getpid()}-{uuid4().hex}"  # a process may need it in two places
    with _locked(folder):
        user.touch()
        if not (folder / "state.json").exists():
            with (folder / "log").open("ab") as log:
                subprocess.run(  # nobody's child, for this process may end before others that use it
                    ["sh", "-c", '"$@" &', "sh", sys.executable, "-m", "tests.kube.apiserver", folder],
                    check=True,
                    stdin=subprocess.DEVNULL,
                    cwd=Path(__file__).parents[2],
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            deadline = time.monotonic() + PATIENCE
            while not (folder / "state.json").exists():
                assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
                time.sleep(0.05)
        state = json.loads((folder / "state.json").read_text())
    try:
        yield state["port"], state["store"], folder / "tls" / "127.0.0.1.pem"
    finally:
        user.unlink()
        deadline = time.monotonic() + 20
        while not list((folder / "users").iterdir()) and (folder / "state.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _start(folder):
    store, peers, port = _free_ports(3)
    (folder / "tls").mkdir()
    certificate(folder / "tls", "127.0.0.1")
    (folder / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n')
    key = rsa.generate_private_key(65537, 2048)
    pem, traditional, open_to_read = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    (folder / "sa.key").write_bytes(key.private_bytes(pem, traditional, open_to_read))
    urls = f"http://127.0.0.1:{store}"
    etcd = [assets() / "etcd", "--data-dir", folder / "etcd", "--listen-client-urls", urls, "--advertise-client-urls", urls]
    etcd += ["--listen-peer-urls", f"http://127.0.0.1:{peers}", "--log-level", "error"]
    server = [assets() / "kube-apiserver", "--etcd-servers", urls, "--bind-address", "127.0.0.1", "--secure-port", str(port)]
    server += ["--tls-cert-file", folder / "tls" / "127.0.0.1.pem", "--tls-private-key-file", folder / "tls" / "127.0.0.1.key"]
    server += ["--cert-dir", folder / "tls", "--authorization-mode", "RBAC", "--token-auth-file", folder / "tokens.csv"]
    server += ["--service-account-issuer", ISSUER, "--service-account-key-file", folder / "sa.key"]
    server += ["--service-account-signing-key-file", folder / "sa.key", "--service-cluster-ip-range", "10.0.0.0/24"]
    server += ["--watch-cache=true", "--default-watch-cache-size=10", "--advertise-address", "127.0.0.1", "--v=1"]
    return [subprocess.Popen([str(word) for word in words]) for words in (etcd, server)], port, store


def _ready(folder, port):
    context = ssl.create_default_context(cafile=folder / "tls" / "127.0.0.1.pem")
    request = urllib.request.Request(f"https://127.0.0.1:{port}/readyz", headers={"Authorization": f"Bearer {ADMIN}"})
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as response:
            return response.status == 200
    except OSError:
        return False


def _alive(folder):
    for user in (folder / "users").iterdir():
        try:
            os.kill(int(user.name.split("-")[0]), 0)
        except ProcessLookupError:
            user.unlink(missing_ok=True)
        else:
            return True
    return False


def main(folder):
    processes, port, store = _start(folder)
    try:
        while not _ready(folder, port):
            assert all(process.poll() is None for process in processes), "a server ended before it was ready"
            assert _alive(folder), "nobody waits any more"
            time.sleep(0.1)
        (folder / "state.new").write_text(json.dumps({"port": port, "store": store}))
        (folder / "state.new").rename(folder / "state.json")
        while True:
            time.sleep(0.2)
            if _alive(folder):
                continue
            with _locked(folder):
                if not _alive(folder):
                    _stop(processes, folder)
                    (folder / "state.json").unlink()
                    return
    finally:
        _stop(processes, folder)


def _stop(processes, folder):
    for process in reversed(processes):
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(["rm", "-rf", folder / "etcd", folder / "tls", folder / "sa.key"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
