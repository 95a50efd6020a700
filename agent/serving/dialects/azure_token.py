"""Shared by Azure's two dialects: the identity and resource that a request means, and the answer with the token.

https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token#get-a-token-using-http
https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference
"""

from dataclasses import dataclass

import msgspec

from agent.model import Grant
from agent.record import Profile
from agent.refusals import Refusal
from agent.serving.dialect import Countdown, CredentialQuery, DialectRequest, plain
from agent.variants import variant_of

HEADERS = {"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"}
OTHER_SELECTORS = ("object_id", "principal_id", "msi_res_id", "mi_res_id")
"""Selectors of managed identities that an application with a federated credential does not have."""


@dataclass(frozen=True, slots=True)
class Objection:
    """The reason why a request gets no token."""

    code: Refusal
    error: str
    """The code of Azure's instance metadata service."""
    reason: str


def wanted(request: DialectRequest, profile: Profile) -> CredentialQuery | Objection:
    """Return the token that the query asks for. `resource` is returned byte for byte: MSAL for Node caches the token under it."""
    query, facts = request.http.query, profile.facts
    clients = [client for client in query.getall("client_id", []) if client]
    if any(query.get(name) for name in OTHER_SELECTORS) or any(one.lower() != facts.get("client-id", "").lower() for one in clients):
        return Objection(Refusal.INVALID_REQUEST, "invalid_request", "Identity not found")
    resources = query.getall("resource", [])
    if len(resources) != 1 or not resources[0]:
        return Objection(Refusal.INVALID_REQUEST, "invalid_request", "Required query variable 'resource' is missing")
    resource = resources[0]
    variant = variant_of(resource, facts.get("resource", ""), facts.get("resources", "").split())
    if variant is None:
        return Objection(Refusal.NOT_ALLOWED, "invalid_resource", f"not allowed: name {resource[:200]!r} in provider.resources")

    def render(grant: Grant, profile: Profile) -> Countdown:
        return _render(grant, profile, resource)

    return CredentialQuery(render, variant=variant, shape=resource)


def _render(grant: Grant, profile: Profile, resource: str) -> Countdown:
    """Render `expires_in` and `expires_on`, both as strings: MSAL reads one or the other, by dialect."""
    held = grant.credential
    assert held.issued_at  # noqa: S101  # `check` refuses a configuration that serves anything but access tokens here
    assert held.expires_at  # noqa: S101
    before = {"access_token": plain(held.document()["access_token"]), "refresh_token": ""}
    after = {
        "expires_on": str(int(held.expires_at.timestamp())),
        "not_before": str(int(held.issued_at.timestamp())),
        "resource": resource,
        "token_type": "Bearer",
        "client_id": profile.facts.get("client-id", ""),
    }
    opening = msgspec.json.encode(before).removesuffix(b"}") + b',"expires_in":"'
    return Countdown(opening, b'",' + msgspec.json.encode(after).removeprefix(b"{"), held.expires_at, HEADERS)
