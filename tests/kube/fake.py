"""A stand-in for kube-apiserver: what the agent asks of one, with RBAC, refusals and watches, as the real one has them.

Every test of it runs over the real one too.
"""

import asyncio
import json
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from uuid import uuid4

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.kube.apiserver import ADMIN, ISSUER

PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[a-z0-9.]+)/v1)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)
KINDS = {
    "namespaces": "Namespace",
    "serviceaccounts": "ServiceAccount",
    "pods": "Pod",
    "secrets": "Secret",
    "events": "Event",
    "roles": "Role",
    "rolebindings": "RoleBinding",
    "clusterroles": "ClusterRole",
    "clusterrolebindings": "ClusterRoleBinding",
}


@cache
def _key():
    return rsa.generate_private_key(65537, 2048)


class _RefusalError(Exception):
    def __init__(self, code, reason, message, **details):
        super().__init__(message)
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        self.status |= {"reason": reason, "code": code, "details": details}


class FakeApiServer:
    def __init__(self, context):
        self._context = context
        self._objects = {}
        """By resource, namespace and name."""
        self._version = 100
        self._log = []
        """(version, resource, type, object) of each change."""
        self._changed = asyncio.Event()
        self.forgotten = 0
        """Watches from before this version are answered with 410."""

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/openid/v1/jwks", self._jwks)
        app.router.add_get("/.well-known/openid-configuration", self._discovery)
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        self.url = f"https://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc_info):
        await self._runner.cleanup()

    async def _jwks(self, request):
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(_key().public_key()))
        return web.json_response({"keys": [{**key, "kid": "fake", "use": "sig", "alg": "RS256"}]})

    async def _discovery(self, request):
        return web.json_response({"issuer": ISSUER, "jwks_uri": f"{self.url}/openid/v1/jwks"})

    async def _answer(self, request):
        try:
            user = self._user(request)
            where = PATH.fullmatch(request.path)
            if not where:
                raise _RefusalError(404, "NotFound", "the server could not find the requested resource")
            found = {key: value or "" for key, value in where.groupdict().items()}
            if found["resource"] == "namespaces" and not found["namespace"]:
                pass
            elif found["namespace"] and not found["resource"]:
                found |= {"resource": "namespaces", "name": found["namespace"]}
            return await self._allowed(request, user, **found)
        except _RefusalError as refusal:
            return web.json_response(refusal.status, status=refusal.status["code"])

    def _user(self, request):
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token == ADMIN:
            return "admin"
        try:
            claims = jwt.decode(token, _key().public_key(), algorithms=["RS256"], audience=ISSUER, leeway=0)
        except jwt.PyJWTError:
            raise _RefusalError(401, "Unauthorized", "Unauthorized") from None
        return claims["sub"]

    def _rules(self, user, namespace):
        for kind, role in (("clusterrolebindings", "clusterroles"), ("rolebindings", "roles")):
            for (resource, where, _), binding in list(self._objects.items()):
                if resource != kind or (where and where != namespace):
                    continue
                subjects = {f"system:serviceaccount:{one.get('namespace')}:{one['name']}" for one in binding.get("subjects", ())}
                if user in subjects:
                    held = self._objects.get((role, where, binding["roleRef"]["name"]))
                    yield from held["rules"] if held else ()

    def _authorize(self, user, verb, group, resource, namespace, name):
        if user == "admin":
            return
        for rule in self._rules(user, namespace):
            if group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]:
                names = rule.get("resourceNames")
                if not names or name in names:
                    return
        plain, _, sub = resource.partition("/")
        named = f'{plain} "{name}"' if name else plain
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        message = (
            f'{named} is forbidden: User "{user}" cannot {verb} resource "{plain}{"/" if sub else ""}{sub}" in API group "{group}"{where}'
        )
        raise _RefusalError(403, "Forbidden", message, kind=plain, name=name)

    def _review(self, user, body):
        asked = body["spec"]["resourceAttributes"]
        resource = f"{asked['resource']}/{asked['subresource']}" if asked.get("subresource") else asked["resource"]
        try:
            self._authorize(user, asked["verb"], asked.get("group", ""), resource, asked.get("namespace", ""), asked.get("name", ""))
        except _RefusalError:
            return body | {"status": {"allowed": False}}
        return body | {"status": {"allowed": True}}

    async def _allowed(self, request, user, group, namespace, resource, name, sub):
        if resource == "selfsubjectaccessreviews":
            return web.json_response(self._review(user, json.loads(await request.read())), status=201)
        watching = request.query.get("watch") == "true"
        selector = re.fullmatch(r"metadata\.name=(.+)", request.query.get("fieldSelector", ""))
        only = name or (selector[1] if selector else "")
        verb = {"GET": "get" if name else "watch" if watching else "list", "POST": "create"}
        verb |= {"DELETE": "delete", "PATCH": "patch", "PUT": "update"}
        self._authorize(user, verb[request.method], group, f"{resource}/{sub}" if sub else resource, namespace, only)
        body = json.loads(await request.read() or b"{}")
        if sub == "token":
            return web.json_response(self._token(namespace, name, body), status=201)
        if resource not in KINDS:
            raise _RefusalError(404, "NotFound", "the server could not find the requested resource")
        if request.method == "GET" and watching:
            return await self._watch(request, resource, namespace, only)
        if request.method == "GET" and not name:
            items = [
                found
                for (kind, where, one), found in self._objects.items()
                if kind == resource and where == namespace and only in ("", one)
            ]
            listed = {"kind": f"{KINDS[resource]}List", "apiVersion": "v1", "metadata": {"resourceVersion": str(self._version)}}
            return web.json_response(listed | {"items": items})
        if request.method == "POST":
            return web.json_response(self._create(resource, namespace, body), status=201)
        found = self._get(resource, namespace, name)
        if request.method == "DELETE":
            del self._objects[resource, namespace, name]
            self._note(resource, "DELETED", found)
        elif request.method in {"PATCH", "PUT"}:
            found = _merged(found, body)
            self._objects[resource, namespace, name] = found
            self._note(resource, "MODIFIED", found)
        return web.json_response(found)

    def _get(self, resource, namespace, name):
        try:
            return self._objects[resource, namespace, name]
        except KeyError:
            raise _RefusalError(404, "NotFound", f'{resource} "{name}" not found', kind=resource, name=name) from None

    def _create(self, resource, namespace, body):
        metadata = body["metadata"]
        name = metadata.setdefault("name", f"{metadata.get('generateName', '')}{uuid4().hex[:5]}")
        if (resource, namespace, name) in self._objects:
            raise _RefusalError(409, "AlreadyExists", f'{resource} "{name}" already exists', kind=resource, name=name)
        if namespace and ("namespaces", "", namespace) not in self._objects:
            raise _RefusalError(404, "NotFound", f'namespaces "{namespace}" not found', kind="namespaces", name=namespace)
        created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body["metadata"] = {**metadata, "namespace": namespace, "uid": str(uuid4()), "creationTimestamp": created}
        self._objects[resource, namespace, name] = body
        self._note(resource, "ADDED", body)
        return body

    def _note(self, resource, kind, found):
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, resource, kind, json.loads(json.dumps(found))))
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch(self, request, resource, namespace, only):
        seen = int(request.query.get("resourceVersion") or self._version)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if seen < self.forgotten:
            status = _RefusalError(410, "Expired", f"too old resource version: {seen} ({self.forgotten})").status
            await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return response
        deadline = time.monotonic() + float(request.query.get("timeoutSeconds", 1800))
        bookmark = _bookmark_due(deadline) if request.query.get("allowWatchBookmarks") == "true" else deadline
        while (now := time.monotonic()) < deadline:
            changed = self._changed
            for version, kind, event, found in self._log:
                where = found["metadata"]
                if version > seen and kind == resource and where["namespace"] == namespace and only in ("", where["name"]):
                    await response.write(json.dumps({"type": event, "object": found}).encode() + b"\n")
            seen = self._version
            if bookmark <= now:
                metadata = {"resourceVersion": str(seen), "creationTimestamp": None}
                found = {"kind": KINDS[resource], "apiVersion": "v1", "metadata": metadata}
                await response.write(json.dumps({"type": "BOOKMARK", "object": found}).encode() + b"\n")
                bookmark = _bookmark_due(deadline)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), max(0.0, min(bookmark, deadline) - time.monotonic()))
        return response

    def _token(self, namespace, name, body):
        account = self._get("serviceaccounts", namespace, name)
        spec = body["spec"]
        seconds = spec.get("expirationSeconds") or 3600
        if seconds < 600:
            wrong = f"spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration less than 10 minutes"
            message = f'TokenRequest.authentication.k8s.io "" is invalid: {wrong}'
            raise _RefusalError(422, "Invalid", message, group="authentication.k8s.io", kind="TokenRequest")
        private = {"namespace": namespace, "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]}}
        if bound := spec.get("boundObjectRef"):
            resource = {"Pod": "pods", "Secret": "secrets"}[bound["kind"]]
            found = self._get(resource, namespace, bound["name"])
            if bound["kind"] == "Pod" and found["spec"]["serviceAccountName"] != name:
                message = f'cannot bind token for serviceaccount "{name}" to pod running with different serviceaccount name.'
                raise _RefusalError(400, "BadRequest", message)
            if bound.get("uid") not in (None, "", found["metadata"]["uid"]):
                uid = found["metadata"]["uid"]
                wrong = f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record ({uid})"
                message = f'Operation cannot be fulfilled on {bound["kind"]} "{bound["name"]}": {wrong}.'
                raise _RefusalError(409, "Conflict", message, kind=bound["kind"], name=bound["name"])
            private[bound["kind"].lower()] = {"name": bound["name"], "uid": found["metadata"]["uid"]}
        now = int(time.time())
        claims = {"iss": ISSUER, "sub": f"system:serviceaccount:{namespace}:{name}", "aud": spec.get("audiences") or [ISSUER]}
        claims |= {"iat": now, "nbf": now, "exp": now + seconds, "kubernetes.io": private}
        expires = datetime.fromtimestamp(now + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"token": jwt.encode(claims, _key(), algorithm="RS256", headers={"kid": "fake"}), "expirationTimestamp": expires}
        return {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": spec, "status": status}


def _bookmark_due(deadline):
    """As the real one: once a minute, and 2 s before the end (nextBookmarkTime in k8s.io/apiserver's cache_watcher.go)."""
    now = time.monotonic()
    return deadline - 2 if now < deadline - 2 < now + 60 else now + 60


def _merged(found, patch):
    """RFC 7396."""
    found = dict(found)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found
