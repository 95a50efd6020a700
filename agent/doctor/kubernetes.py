"""The cluster's links: the agent's rights there, the ServiceAccount and its annotations, and the keys that sign.

Requested with the source's own credentials: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from collections.abc import Iterator, Sequence
from typing import Any

from agent.doctor import issuer
from agent.doctor.case import Case, broken, ok, skipped, tag, warning
from agent.doctor.report import Finding, Verdict
from agent.errors import RefreshError
from agent.kube.client import Kube, text_at
from agent.kube.errors import ApiError, Attempt
from agent.serviceaccounts.annotations import effective, followed, sighted
from agent.sources.kubernetes import KubernetesSettings, ServiceAccount

RIGHTS, ACCOUNT, ISSUER, ENDPOINT = "rbac", "account", "issuer", "endpoint"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WATCH_VERBS = ("get", "list", "watch")
IRSA = "eks.amazonaws.com/role-arn"
HOSTING_REMEDY = "start the API server with a public https --service-account-issuer, and host both documents there: docs/kubernetes.md"


async def look(case: Case) -> list[Finding]:
    """Check rights and ServiceAccount. If annotations name the principal, the case takes it from them. Nothing for other sources."""
    source, kube = case.identity.source, _kube(case)
    if not isinstance(source, KubernetesSettings) or kube is None:
        return []
    account, follows = source.service_account, followed(case.identity) is not None
    needed = [Attempt(verb="create", resource="serviceaccounts/token", namespace=account.namespace, name=account.name)]
    watch = [Attempt(verb=verb, resource="serviceaccounts", namespace=account.namespace, name=account.name) for verb in WATCH_VERBS]
    optional = Attempt(verb="create", resource="events", namespace=account.namespace)
    try:
        missing = [attempt for attempt in needed if not await _may(kube, attempt)]
        unwatched = [attempt for attempt in watch if not await _may(kube, attempt)]
        events = await _may(kube, optional)
        subject = (await kube.asker()).subject or "the kubeconfig's user"
    except ApiError as error:
        failure = await kube.failure(error, needed[0], whose=case.name)
        return [broken(RIGHTS, case.without_name(failure.message), failure.remedy)]
    except RefreshError as error:
        return [broken(RIGHTS, case.without_name(error.message), error.remedy)]
    found = [broken(RIGHTS, f"{subject} may not {attempt}", f"bind it to the Role of {_manifest(attempt)}") for attempt in missing]
    if unwatched:
        found.append(_unwatched(subject, unwatched, follows=follows))
    if not events and all(finding.verdict is not Verdict.BROKEN for finding in found):
        found.append(
            warning(RIGHTS, f"{subject} may not {optional}, so the agent reports no failures there", f"for events: {_manifest(optional)}")
        )
    return [*(found or [ok(RIGHTS, f"{subject} has the rights that it needs")]), *await _account(case, kube, account, follows=follows)]


def _unwatched(subject: str, missing: Sequence[Attempt], *, follows: bool) -> Finding:
    """Return one finding for the three verbs of a watch: broken if annotations name the principal."""
    verbs, first = " or ".join(attempt.verb for attempt in missing), missing[0]
    text = f"{subject} may not {verbs} {str(first).partition(' ')[2]}"
    remedy = f"bind it to the Role of {_manifest(first)}, with the verbs get, list and watch"
    if follows:
        return broken(RIGHTS, text, remedy)
    return warning(RIGHTS, f"{text}, so the agent notices at the next refresh only that the ServiceAccount was deleted", remedy)


async def documents(case: Case) -> list[Finding]:
    """Compare the API server's own discovery document and keys with the token; empty if the issuer's host has to be asked.

    They show at once why a cloud would refuse the token: a private issuer, or a key that is not published.
    """
    kube, token = _kube(case), case.token
    if kube is None or token is None:
        return []
    try:
        document = await kube.send("GET", issuer.DISCOVERY)
        kids = issuer.kids(await kube.send("GET", "/openid/v1/jwks"))
    except (ApiError, RefreshError):
        return []  # not every API server lets every client read them
    kid, url, keys_url = issuer.kid(case), text_at(document, "issuer"), text_at(document, "jwks_uri")
    if url != token.issuer:
        text = f"the API server's discovery document has the issuer {url!r}, the token's iss is {token.issuer!r}"
        return [broken(ISSUER, text, "every API server needs the same --service-account-issuer first: the first one signs")]
    if kid not in kids:
        text = f"the API server publishes the keys {', '.join(kids) or 'none'}, and not {kid}, which signed the token"
        return [broken(ISSUER, text, "every API server needs the signing key among its --service-account-key-file")]
    if not case.has_cloud:
        return [ok(ISSUER, f"the API server publishes the key {kid} of {url}")]
    if doubts := issuer.doubts(url, keys_url):
        return [broken(ISSUER, f"{url} (keys: {keys_url}): {' and '.join(doubts)}", HOSTING_REMEDY)]
    return []


def unnamed(case: Case) -> bool:
    """Whether the ServiceAccount's annotations should name the principal, and do not."""
    return followed(case.identity) is not None


async def _account(case: Case, kube: Kube, account: ServiceAccount, *, follows: bool) -> list[Finding]:
    name = f"{account.namespace}/{account.name}"
    attempt = Attempt(verb="get", resource="serviceaccounts", namespace=account.namespace, name=account.name, by_default=account.by_default)
    try:
        found = await kube.send("GET", f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.name}")
    except ApiError as error:
        if error.status == 403 and not follows:
            return [
                Finding(
                    ACCOUNT,
                    Verdict.UNUSED,
                    f"{name}: the agent may not read it, so the agent notices its deletion at the next refresh ({_manifest(attempt)})",
                )
            ]
        if error.status == 403:
            return [skipped(ACCOUNT, "the rights")]
        failure = await kube.failure(error, attempt, whose=case.name)
        return [broken(ACCOUNT, case.without_name(failure.message), failure.remedy)]
    except RefreshError as error:
        return [broken(ACCOUNT, case.without_name(error.message), error.remedy)]
    last_observed = sighted(found, account)
    if last_observed is None:
        return [
            broken(ACCOUNT, f"{name} is being deleted", f"wait, then create it: kubectl create serviceaccount -n {name.replace('/', ' ')}")
        ]
    if not follows:
        return [ok(ACCOUNT, f"{name} exists"), *_rivals(case, last_observed.annotations.get(IRSA, ""))]
    try:
        case.identity, case.uid = effective(case.identity, last_observed), last_observed.uid
    except RefreshError as error:
        return [broken(ACCOUNT, case.without_name(error.message), error.remedy)]
    said = f"{name} exists, and its annotations name the principal"
    return [ok(ACCOUNT, said), *_rivals(case, last_observed.annotations.get(IRSA, ""))]


def _rivals(case: Case, role: str) -> Iterator[Finding]:
    """Warn of EKS' webhook: it sets variables in every pod of an annotated ServiceAccount, and SDKs prefer them to the endpoint."""
    if role and tag(case.identity.provider) == "aws" and case.identity.serve.dialects:
        text = f"because of the annotation {IRSA}, EKS sets AWS_WEB_IDENTITY_TOKEN_FILE in its pods, which SDKs prefer to the endpoint"
        remedy = "name the workload's container in the pod's annotation eks.amazonaws.com/skip-containers, or unset it: wi-agent env"
        yield warning(ACCOUNT, text, remedy)


async def _may(kube: Kube, attempt: Attempt) -> bool:
    """Return whether the API server allows it. Raise ApiError, NotReady, Unavailable or Rejected."""
    resource, _, sub = attempt.resource.partition("/")
    wanted = {"verb": attempt.verb, "resource": resource, "subresource": sub, "namespace": attempt.namespace, "name": attempt.name}
    spec = {"resourceAttributes": {key: value for key, value in wanted.items() if value}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer: Any = (await kube.send("POST", REVIEWS, body=body)).get("status")
    return isinstance(answer, dict) and answer.get("allowed") is True


def _manifest(attempt: Attempt) -> str:
    which = {"serviceaccounts/token": "token", "serviceaccounts": "watch", "events": "events"}[attempt.resource]
    return f"docs/rbac/{which}.yaml"


def _kube(case: Case) -> Kube | None:
    source = case.identity.source
    if not isinstance(source, KubernetesSettings) or case.toolbox.kube is None:
        return None
    return case.toolbox.kube.client(source.kubeconfig)
