"""What only a cluster can say: which rights the agent has there, who the ServiceAccount says the identity is, and which keys sign.

Asked by the source's own credentials: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from collections.abc import Iterator
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
IRSA = "eks.amazonaws.com/role-arn"
HOSTING = "start the API server with a public https --service-account-issuer, and host the two documents there: docs/kubernetes.md"


async def look(case: Case) -> list[Finding]:
    """Rights and ServiceAccount; where that says who the identity is, the case goes on with it. Nothing for other sources."""
    source, kube = case.identity.source, _kube(case)
    if not isinstance(source, KubernetesSettings) or kube is None:
        return []
    account, follows = source.service_account, followed(case.identity) is not None
    needed = [Attempt(verb="create", resource="serviceaccounts/token", namespace=account.namespace, name=account.name)]
    verbs = ("get", "list", "watch") if follows else ()
    needed += [Attempt(verb=verb, resource="serviceaccounts", namespace=account.namespace, name=account.name) for verb in verbs]
    wished = Attempt(verb="create", resource="events", namespace=account.namespace)
    try:
        missing = [question for question in needed if not await _may(kube, question)]
        events = await _may(kube, wished)
        subject = (await kube.asker()).subject or "the kubeconfig's user"
    except ApiError as error:
        failure = await kube.failure(error, needed[0], whose=case.name)
        return [broken(RIGHTS, case.own(failure.message), failure.remedy)]
    except RefreshError as error:
        return [broken(RIGHTS, case.own(error.message), error.remedy)]
    found = [broken(RIGHTS, f"{subject} may not {question}", f"bind it to the Role of {_manifest(question)}") for question in missing]
    if not found and not events:
        found = [warning(RIGHTS, f"{subject} may do what it needs, and not {wished}", f"for events: {_manifest(wished)}")]
    return [*(found or [ok(RIGHTS, f"{subject} may do what it needs")]), *await _account(case, kube, account, follows=follows)]


async def documents(case: Case) -> list[Finding]:
    """The API server's own discovery document and keys, compared with the token; empty where others have to be asked.

    They say at once what a cloud would only find out by failing: a private issuer, a key that is not published.
    """
    kube, token = _kube(case), case.token
    if kube is None or token is None:
        return []
    try:
        document = await kube.send("GET", issuer.DISCOVERY)
        kids = issuer.kids(await kube.send("GET", "/openid/v1/jwks"))
    except (ApiError, RefreshError):
        return []  # it need not let everybody see them
    kid, url, keys_url = issuer.kid(case), text_at(document, "issuer"), text_at(document, "jwks_uri")
    if url != token.issuer:
        text = f"the API server's discovery document is that of {url!r}, the token's iss is {token.issuer!r}"
        return [broken(ISSUER, text, "every API server needs the same --service-account-issuer first: the first one signs")]
    if kid not in kids:
        text = f"the API server publishes the keys {', '.join(kids) or 'none'}, and not {kid}, which signed the token"
        return [broken(ISSUER, text, "every API server needs the signing key among its --service-account-key-file")]
    if not case.clouded:
        return [ok(ISSUER, f"the API server publishes the key {kid} of {url}")]
    if doubts := issuer.doubts(url, keys_url):
        return [broken(ISSUER, f"{url} (keys: {keys_url}): {' and '.join(doubts)}", HOSTING)]
    return []


def nobody(case: Case) -> bool:
    """Whether the ServiceAccount should say who the identity is, and does not."""
    return followed(case.identity) is not None


async def _account(case: Case, kube: Kube, account: ServiceAccount, *, follows: bool) -> list[Finding]:
    name = f"{account.namespace}/{account.name}"
    question = Attempt(
        verb="get", resource="serviceaccounts", namespace=account.namespace, name=account.name, by_default=account.by_default
    )
    try:
        found = await kube.send("GET", f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.name}")
    except ApiError as error:
        if error.status == 403 and not follows:
            return [
                Finding(
                    ACCOUNT,
                    Verdict.UNUSED,
                    f"{name}: the agent may not look at it, so its deletion is noticed at the next refresh ({_manifest(question)})",
                )
            ]
        if error.status == 403:
            return [skipped(ACCOUNT, "the rights")]
        failure = await kube.failure(error, question, whose=case.name)
        return [broken(ACCOUNT, case.own(failure.message), failure.remedy)]
    except RefreshError as error:
        return [broken(ACCOUNT, case.own(error.message), error.remedy)]
    last_observed = sighted(found, account)
    if last_observed is None:
        return [
            broken(ACCOUNT, f"{name} is being deleted", f"wait, and create it: kubectl create serviceaccount -n {name.replace('/', ' ')}")
        ]
    if not follows:
        return [ok(ACCOUNT, f"{name} is there"), *_rivals(case, last_observed.annotations.get(IRSA, ""))]
    try:
        case.identity, case.uid = effective(case.identity, last_observed), last_observed.uid
    except RefreshError as error:
        return [broken(ACCOUNT, case.own(error.message), error.remedy)]
    said = f"{name} is there, and its annotations say who the identity is"
    return [ok(ACCOUNT, said), *_rivals(case, last_observed.annotations.get(IRSA, ""))]


def _rivals(case: Case, role: str) -> Iterator[Finding]:
    """EKS' webhook gives every pod of an annotated ServiceAccount variables that SDKs prefer to the endpoint's."""
    if role and tag(case.identity.provider) == "aws" and case.identity.serve.dialects:
        text = f"the annotation {IRSA} has EKS set AWS_WEB_IDENTITY_TOKEN_FILE in its pods, which SDKs prefer to the endpoint"
        remedy = "name the workload's container in the pod's annotation eks.amazonaws.com/skip-containers, or unset it: wi-agent env"
        yield warning(ACCOUNT, text, remedy)


async def _may(kube: Kube, question: Attempt) -> bool:
    """Raises RefusedError, NotReady, Unavailable or Rejected."""
    resource, _, sub = question.resource.partition("/")
    wanted = {"verb": question.verb, "resource": resource, "subresource": sub, "namespace": question.namespace, "name": question.name}
    spec = {"resourceAttributes": {key: value for key, value in wanted.items() if value}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer: Any = (await kube.send("POST", REVIEWS, body=body)).get("status")
    return isinstance(answer, dict) and answer.get("allowed") is True


def _manifest(question: Attempt) -> str:
    which = {"serviceaccounts/token": "token", "serviceaccounts": "watch", "events": "events"}[question.resource]
    return f"docs/rbac/{which}.yaml"


def _kube(case: Case) -> Kube | None:
    source = case.identity.source
    if not isinstance(source, KubernetesSettings) or case.toolbox.kube is None:
        return None
    return case.toolbox.kube.client(source.kubeconfig)
