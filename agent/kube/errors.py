"""Refusals of an API server, sorted by the reaction that they call for.

Its answer is a `Status`: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agent.errors import Ended, RefreshError, Rejected, Unavailable
from agent.model import Secret
from agent.parsing import json_object
from agent.sanitize import repeatable, seconds

PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that a later try may not meet again."""
WRONG = frozenset({400, 409, 422})
"""Statuses by which the API server says what is wrong with what was asked."""
SETTLING = frozenset({401, 403})
"""Statuses of an API server that has just started and has not loaded its rules, or of rules that were just granted."""
UNKNOWN = "the kubeconfig's user"
EXPIRED = 410
"""The resourceVersion is older than what the API server remembers: list again (KEP-365, API concepts)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request, as far as a remedy needs to know it. It holds no secret."""

    verb: str
    """As RBAC calls it: get, list, watch, create, patch."""
    resource: str
    """With the subresource: `serviceaccounts/token`."""
    namespace: str = ""
    name: str = ""
    by_default: bool = False
    """Whether the name is `tenancy.defaultServiceAccount`'s, and not what the identity asked for."""

    def __str__(self) -> str:
        named = f" of {self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{named}{f' in namespace {self.namespace}' if self.namespace else ''}"


class ApiError(Exception):
    """The API server answered with an error. No module above the sources sees it."""

    def __init__(
        self, *, status: int, reason: str = "", text: str = "", details: Mapping[str, Any] | None = None, retry_after: str = ""
    ) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        """A word of the API's, such as NotFound, Forbidden, Expired."""
        self.text = text
        self.details = details or {}
        """`kind` and `name` of what it is about, where the API server says so."""
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The user of a request."""

    server: str
    subject: str = ""
    """As RBAC knows it; empty where only the API server can say."""
    expired_at: datetime | None = field(default=None)
    """When the asker's own token expired, if it has."""
    token: Secret | None = None
    """The asker's own, which no words may repeat."""


def refused(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error of an answer; a body that is not a Status is not repeated."""
    return from_status(json_object(body) or {}, status, headers.get("Retry-After", ""))


def from_status(found: Mapping[str, Any], status: int = 0, retry_after: str = "") -> ApiError:
    """From a Status, as an answer or as an event of a watch."""
    details = found.get("details")
    code = found.get("code")
    ours = found.get("kind") == "Status"
    return ApiError(
        status=status or (code if isinstance(code, int) else 0),
        reason=str(found.get("reason") or "") if ours else "",
        text=str(found.get("message") or "") if ours else "",
        details=details if ours and isinstance(details, dict) else {},
        retry_after=retry_after,
    )


def sort(error: ApiError, question: Attempt, asker: Caller, *, whose: str, now: datetime) -> RefreshError:
    """Return the failure to raise, with a remedy."""
    words = repeatable(error.text, [asker.token] if asker.token else ())
    said = f"the API server answered {error.status} to {question}{': ' if words else ''}{words}"
    if error.status == 401:
        return _unknown(asker, f"{whose}: {said}")
    if error.status == 403 and _ending(error):
        return Rejected(f"{whose}: {said}", remedy="remove the identity, or create the namespace again once it is gone")
    if error.status == 403:
        subject = asker.subject or _named(words) or UNKNOWN
        return Rejected(
            f"{whose}: {subject} may not {question}: {words or 'forbidden'}",
            remedy=f"bind {_kind(subject)} to {_role(question)} (docs/rbac.md)",
        )
    if error.status == 404:
        return _missing(error, question, f"{whose}: {said}")
    if error.status in PASSING or error.status > 500:
        return Unavailable(f"{whose}: {said}", retry_after=seconds(error.retry_after, now) if error.retry_after else None)
    if error.status in WRONG:
        return Rejected(f"{whose}: {said}", remedy="correct the source's settings as the API server says")
    return Rejected(f"{whose}: {said}", remedy=f"check that {asker.server} is a Kubernetes API server")


def _ending(error: ApiError) -> bool:
    """Whether the namespace is being deleted: the API server then answers 403 to whatever would be created in it."""
    causes = error.details.get("causes")
    reasons = [cause.get("reason") for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    return "NamespaceTerminating" in reasons


def _unknown(asker: Caller, message: str) -> RefreshError:
    if asker.expired_at:
        return Unavailable(
            f"{message}; the agent's own token expired at {asker.expired_at:%Y-%m-%dT%H:%M:%SZ}",
            remedy="check that kubelet, or the writer of the token file, renews it: the agent reads it anew for each request",
        )
    return Rejected(message, remedy="check that the agent's own token or certificate belongs to this cluster, and check the clocks")


def _missing(error: ApiError, question: Attempt, message: str) -> Rejected:
    kind, name = str(error.details.get("kind") or ""), repeatable(str(error.details.get("name") or ""), ())
    if kind in {"pods", "secrets"}:
        return Rejected(message, remedy=f"what the token is bound to ({kind} {name}) is gone: correct source.boundTo, or remove it")
    if kind == "serviceaccounts":
        said, remedy = absent(question)
        ended = question.resource == "serviceaccounts/token" and name == question.name
        return (Ended if ended else Rejected)(f"{message}; {said}", remedy=remedy)
    return Rejected(message, remedy="check the version of the API server, and the proxy before it: it does not know this resource")


def absent(question: Attempt) -> tuple[str, str]:
    """Return message and remedy for a ServiceAccount that does not exist: a tenant did not choose the default one."""
    place = f"{question.namespace}/{question.name}"
    if question.by_default:
        return (
            f"there is no ServiceAccount {place}, and tenancy.defaultServiceAccount locks every identity down to it that names none",
            "reach out to the cluster's administrator, or name a ServiceAccount of your own in source.serviceAccount",
        )
    create = f"kubectl create serviceaccount -n {question.namespace} {question.name}"
    return f"there is no ServiceAccount {place}", f"create it ({create}), or correct source.serviceAccount"


def _role(question: Attempt) -> str:
    """In words, what the Role has to hold."""
    kind = "Role" if question.namespace else "ClusterRole"
    where = f" in namespace {question.namespace}" if question.namespace else ""
    names = f", resourceNames [{question.name}]" if question.name else ""
    verbs = "get, list, watch" if question.verb in {"list", "watch"} else question.verb  # a watch begins with a list
    return f"a {kind}{where} with verbs [{verbs}] on resources [{question.resource}]{names}"


def _kind(subject: str) -> str:
    parts = subject.split(":")
    if len(parts) == 4 and parts[:2] == ["system", "serviceaccount"]:
        return f"ServiceAccount {parts[2]}/{parts[3]}"
    return subject if subject == UNKNOWN else f"user {subject}"


def _named(words: str) -> str:
    """Whom the API server's authorizer refused, by its own words."""
    found = re.search(r'User "([^"\s]{1,253})" cannot ', words)
    return found[1] if found else ""
