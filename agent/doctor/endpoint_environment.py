"""Variables of this environment that keep an SDK from the endpoint: they take precedence, lead elsewhere, or name a proxy."""

from collections.abc import Iterator

from agent.doctor.case import Case, warning
from agent.doctor.report import Finding
from agent.envvars import EnvVars
from agent.identities.addresses import spot

LINK = "endpoint"
WEAKER = (
    "AWS_CONTAINER_",
    "AWS_EC2_",
    "AZURE_POD_IDENTITY_",
    "IDENTITY_",
    "IMDS_",
    "MSI_",
    "ALIBABA_CLOUD_CREDENTIALS_URI",
    "ALIBABA_CLOUD_ECS_",
)
"""Variables that lead to an endpoint themselves."""
WEBHOOKS = {
    "AWS_ROLE_ARN": "in EKS remove the annotation eks.amazonaws.com/role-arn",
    "AZURE_FEDERATED_TOKEN_FILE": "in AKS remove the label azure.workload.identity/use",
    "ALIBABA_CLOUD_OIDC_TOKEN_FILE": "in ACK remove the label pod-identity.alibabacloud.com/injection",
}
"""How to stop the cloud's webhook that sets the variable."""
PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def look(case: Case) -> Iterator[Finding]:
    """Return a warning for each kind; nothing if `env` has no variables for this cloud's SDKs."""
    identity = case.identity
    variables = identity.provider.served(case.name, spot(case.config, identity, identity.serve.dialects[0]))
    if variables is None:
        return
    clear = f'eval "$(wi-agent env {case.name})"'
    stronger = [name for name in variables.unset if case.environ.get(name) and name not in PROXIES and not name.startswith(WEAKER)]
    if stronger:
        webhooks = "".join(f"; {remedy}" for name, remedy in WEBHOOKS.items() if name in stronger)
        yield warning(LINK, f"SDKs prefer {', '.join(stronger)}, set here, to the endpoint", f"{clear} clears them{webhooks}")
    if astray := [name for name in variables.values if _leads_astray(case, variables, name)]:
        yield warning(LINK, f"{', '.join(astray)}, set here, leads to another address than this endpoint", f"{clear} corrects it")
    if proxies := [name for name in PROXIES if case.environ.get(name)]:
        if any(name in variables.unset for name in proxies):
            yield warning(LINK, f"this cloud's SDKs use {', '.join(proxies)}, set here, even for the endpoint", f"{clear} clears it")
        elif not _bypasses_proxy(case, variables):
            yield warning(LINK, f"SDKs would use {', '.join(proxies)}, set here, because NO_PROXY lacks the endpoint", f"{clear} adds it")


def _leads_astray(case: Case, variables: EnvVars, name: str) -> bool:
    """Return whether the variable should name the endpoint and does not. Its value is not shown: it may hold an authorization."""
    wanted, found = variables.values[name], case.environ.get(name, "")
    before = wanted if isinstance(wanted, str) else getattr(wanted, "before", "")
    hosts = {
        one.removeprefix("http://").partition("/")[0]
        for one in (case.base, spot(case.config, case.identity, case.identity.serve.dialects[0]).root)
    }
    host = before.removeprefix("http://").partition("/")[0]
    return bool(found) and host in hosts - {""} and not found.startswith(before)


def _bypasses_proxy(case: Case, variables: EnvVars) -> bool:
    """Return whether NO_PROXY names every host of the endpoint; a star names all."""
    for name in ("NO_PROXY", "no_proxy"):
        there = {host.strip() for host in case.environ.get(name, "").split(",")}
        if "*" in there or set(variables.additions.get(name, "").split(",")) <= there:
            return True
    return False
