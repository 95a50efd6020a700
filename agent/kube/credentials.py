"""The address of the API server and the agent's credentials there: the pod's own service account, or a kubeconfig.

Read here and not by kubernetes_asyncio, whose loader quotes a user's token in its error messages, writes private keys to
files of the temporary directory for as long as the process lives, and reads a `tokenFile` once.
"""

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agent.errors import NotReady, Rejected, Unavailable
from agent.model import Secret
from agent.settings import Address, Url

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where kubelet projects a pod's own token and the cluster's CA: KEP-1205, and every client since."""
MAX_FILE_BYTES = 1024 * 1024
"""The API server's own limit for an object."""

Reader = Callable[[Path, str], str]
"""Returns the text of a file; the second argument is the remedy to name if it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCredentials:
    """What one request needs to know. Two are equal if the same connections serve both."""

    server: str
    """https://host:port, without a slash at its end."""
    ca: str = ""
    """PEM; empty for the system's authorities."""
    certificate: str = ""
    """The client's own, PEM."""
    key: Secret | None = field(default=None)
    token: Secret | None = field(default=None, compare=False)
    """Sent as Bearer; it may change without a new connection."""
    server_name: str = ""
    proxy: str = ""
    user: str = ""
    """The kubeconfig's name for whom we are, for messages."""


def read_file(path: Path, remedy: str) -> str:
    """Return the text. Raises NotReady, Unavailable or Rejected."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES)
        return data.decode()
    except FileNotFoundError:
        raise NotReady(f"there is no {path}", remedy=remedy) from None
    except PermissionError:
        raise Rejected(f"cannot read {path}: permission denied", remedy=f"let uid {os.geteuid()} or its groups read it") from None
    except UnicodeDecodeError:
        raise Rejected(f"{path} is not text", remedy=remedy) from None
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror}") from error


def in_cluster(environ: Mapping[str, str], folder: Path, read: Reader = read_file) -> ApiCredentials:
    """By the pod's own service account. Raises NotReady, Unavailable or Rejected."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise Rejected(
            "the agent does not run in a pod: KUBERNETES_SERVICE_HOST is not set",
            remedy="set source.kubeconfig, or run the agent in the cluster",
        )
    mounted = "set automountServiceAccountToken: true, or project the token there"
    token = read(folder / "token", mounted).strip()
    if not token:
        raise NotReady(f"the agent's own token {folder / 'token'} is empty", remedy=mounted)
    return ApiCredentials(
        server=_server(f"https://{_bracketed(host)}:{port}", "KUBERNETES_SERVICE_HOST"),
        ca=read(folder / "ca.crt", mounted),
        token=Secret(_header(token, folder / "token")),
    )


def from_kubeconfig(path: Path, read: Reader = read_file) -> ApiCredentials:
    """By the current context of a kubeconfig; its `tokenFile` is read each time. Raises NotReady, Unavailable or Rejected."""
    text = read(path, "check source.kubeconfig")
    try:
        document = yaml.safe_load(text)
    except Exception:  # noqa: BLE001  # PyYAML raises AttributeError and TypeError, too; its words quote a line, perhaps with a token
        document = None
    if not isinstance(document, dict):
        raise Rejected(f"{path} is not a kubeconfig", remedy="check source.kubeconfig")
    context = _named(document, "context", document.get("current-context"), path)
    cluster = _named(document, "cluster", context.get("cluster"), path)
    name = context.get("user")
    user = _named(document, "user", name, path) if name else {}
    for unread in ("exec", "auth-provider", "username"):
        if unread in user:
            raise Rejected(
                f"{path}: its user signs in by `{unread}`, which the agent does not do",
                remedy="give the user a tokenFile, a token or a client certificate",
            )
    if cluster.get("insecure-skip-tls-verify"):
        raise Rejected(
            f"{path}: its cluster sets `insecure-skip-tls-verify`: the agent sends its token to verified API servers only",
            remedy="remove it, and set certificate-authority or certificate-authority-data to the API server's authority",
        )
    token = _text(user, "token") or (read(path.parent / user["tokenFile"], "check the tokenFile") if _text(user, "tokenFile") else "")
    key = _pem(user, "client-key", path, read)
    if "ENCRYPTED" in key:  # OpenSSL would ask a terminal for its password
        raise Rejected(f"{path}: its client-key is encrypted", remedy="store the key without a password, in a file of mode 0600")
    return ApiCredentials(
        server=_server(_text(cluster, "server"), path),
        ca=_pem(cluster, "certificate-authority", path, read),
        certificate=_pem(user, "client-certificate", path, read),
        key=Secret(key) if key else None,
        token=Secret(_header(token.strip(), path)) if token.strip() else None,
        server_name=_text(cluster, "tls-server-name"),
        proxy=_text(cluster, "proxy-url"),
        user=str(name or ""),
    )


def _named(document: Mapping[str, Any], kind: str, name: object, path: Path) -> Mapping[str, Any]:
    """The entry of that name in `contexts`, `clusters` or `users`."""
    entries = document.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and name is not None and entry.get("name") == name and isinstance(entry.get(kind), dict):
            found: Mapping[str, Any] = entry[kind]
            return found
    raise Rejected(f"{path} has no {kind} of the name that it points to", remedy="check its current-context")


def _pem(entry: Mapping[str, Any], name: str, path: Path, read: Reader) -> str:
    """What stands in `<name>-data`, or in the file that `<name>` names; relative to the kubeconfig, as for kubectl."""
    if data := _text(entry, f"{name}-data"):
        try:
            return base64.b64decode(data, validate=True).decode("ascii")
        except (binascii.Error, ValueError):
            raise Rejected(f"{path}: {name}-data is not base64 of PEM", remedy="check the kubeconfig") from None
    return read(path.parent / _text(entry, name), f"check {name} in {path}") if _text(entry, name) else ""


def _text(entry: Mapping[str, Any], name: str) -> str:
    found = entry.get(name)
    return found if isinstance(found, str) else ""


def _server(text: str, where: object) -> str:
    """Over http a token goes to this machine only: anybody on the way could read it. kubectl sends none at all then."""
    try:
        url = Url.parse(text)
    except ValueError as error:
        raise Rejected(f"{where} names no API server: {error}", remedy="set an https URL") from None
    if url.scheme == "http" and not Address.parse(f"{_bracketed(url.hostname)}:0").loopback:
        raise Rejected(f"{where}: {url.shown} would be sent the agent's token in the clear", remedy="set an https URL")
    return url.text.rstrip("/")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _header(token: str, where: object) -> str:
    """A token that can be sent; aiohttp's complaint about another would quote it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Rejected(f"the token in {where} cannot be sent", remedy="write it as one line of ASCII")
    return token
