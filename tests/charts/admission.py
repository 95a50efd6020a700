"""An API server's admission, asked as `kubectl apply --validate=strict` asks, with namespaces that hold pods to a level of Pod Security.

Servers before 1.25 know neither: they take unknown fields, and every pod that makes sense.
"""

import json
import re
import ssl
import time
import urllib.error
import urllib.request
from uuid import uuid4

from tests.charts.helm import CLUSTERS
from tests.kube.apiserver import ADMIN

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NAME = {"type": "string", "minLength": 1}
LENGTH = {"type": "string", "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(required, **properties):
    return {"type": "object", "required": required, "properties": properties}


def _list(items):
    return {"type": "array", "items": items}


OPERATORS = {
    "PodMonitor": _object(
        ["selector", "podMetricsEndpoints"],
        selector=_object([], matchLabels=TEXTS),
        podMetricsEndpoints=_list(_object([], port={"type": "string"}, path={"type": "string"}, interval=LENGTH)),
    ),
    "PrometheusRule": _object(
        [],
        groups=_list(
            _object(
                ["name"],
                name=NAME,
                interval=LENGTH,
                rules=_list(_object(["expr"], alert=NAME, expr={"type": "string"}, labels=TEXTS, annotations=TEXTS, **{"for": LENGTH})),
            )
        ),
    ),
}
"""As much of the Prometheus operator's custom resources as the chart uses, no field more: monitoring.coreos.com/v1, operator 0.82."""


class ForbiddenError(Exception):
    """The API server's own words."""


class Server:
    """The admin's way to it."""

    def __init__(self, port, ca):
        self._url = f"https://127.0.0.1:{port}"
        self._trusted = ssl.create_default_context(cafile=ca)
        self.version = tuple(int(part) for part in re.findall(r"\d+", self.ask("GET", "/version")[0]["gitVersion"])[:2])
        self.strict = self.version >= (1, 25)
        """Whether it refuses unknown fields, and pods that a namespace's level of Pod Security does not let in."""
        self.clusters = [one for one in CLUSTERS if self.version >= (1, 29) or one.startswith("1.28.")]
        """What the chart may be rendered for, for this one to take it: native sidecars came with 1.29."""

    def ask(self, method, path, body=None):
        """(answer, warnings). Raises ForbiddenError with the reason for what is not taken."""
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._trusted) as response:
                return json.load(response), response.headers.get_all("Warning") or []
        except urllib.error.HTTPError as error:
            with error:
                raise ForbiddenError(json.load(error)["message"]) from None

    def namespace(self, level):
        """A new one, where pods are held to that level of Pod Security; its name."""
        name = f"charts-{uuid4().hex[:8]}"
        labels = {f"pod-security.kubernetes.io/{what}": level for what in ("enforce", "warn")}
        self.ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        for account in ("default", "app"):  # no controller is there to make the first, and none makes the token that old servers want
            body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}, "automountServiceAccountToken": False}
            self.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts", body)
        return name

    def create(self, manifest, namespace):
        """In that namespace, whatever the manifest says; for a Deployment its pod too, which nobody else would make. The warnings."""
        metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
        group, resources = manifest["apiVersion"], _plural(manifest["kind"])
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        query = "?fieldValidation=Strict"
        _, warnings = self.ask("POST", f"{root}/namespaces/{namespace}/{resources}{query}", {**manifest, "metadata": metadata})
        if manifest["kind"] == "Deployment":
            template = manifest["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "generateName": "p-"}, "spec": template["spec"]}
            warnings += self.ask("POST", f"/api/v1/namespaces/{namespace}/pods{query}", pod)[1]
        return warnings

    def furnish(self):
        """The Prometheus operator's kinds, once for all workers."""
        for kind, spec in OPERATORS.items():
            plural, group = _plural(kind), "monitoring.coreos.com"
            schema = {"openAPIV3Schema": _object(["spec"], spec=spec)}
            definition = {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                    "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
                },
            }
            try:
                self.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
            except ForbiddenError as error:
                if "already exists" not in str(error):
                    raise
            self._until_served(f"/apis/{group}/v1/{plural}")

    def _until_served(self, path):
        deadline = time.monotonic() + 30
        while True:
            try:
                self.ask("GET", path)
            except (ForbiddenError, json.JSONDecodeError):
                assert time.monotonic() < deadline, f"{path} is not served"
                time.sleep(0.1)
            else:
                return


def _plural(kind):
    return kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s")
