"""The variables and files that make Azure's SDKs use an identity, from its files or from the endpoint.

DefaultAzureCredential's order: environment (secret, certificate, password), workload identity, managed identity; so
each variable that wins over the token file, or chooses another credential, is unset.
https://learn.microsoft.com/python/api/azure-identity/azure.identity.defaultazurecredential
https://azure.github.io/azure-workload-identity/docs/installation/mutating-admission-webhook.html
"""

import json
from collections.abc import Mapping

from agent.envvars import AuthorizationValue, EnvVars, ServedAt, dotenv_value
from agent.model import Paths
from agent.providers.azure.authority import Authority

STATIC = (
    "AZURE_CLIENT_SECRET",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AZURE_CLIENT_CERTIFICATE_PASSWORD",
    "AZURE_USERNAME",
    "AZURE_PASSWORD",
)
CHOICE = ("AZURE_TOKEN_CREDENTIALS",)
MANAGED = ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "IDENTITY_SERVER_THUMBPRINT", "IMDS_ENDPOINT", "MSI_ENDPOINT", "MSI_SECRET")
TOKEN_PROXY = ("AZURE_KUBERNETES_TOKEN_PROXY", "AZURE_KUBERNETES_CA_FILE", "AZURE_KUBERNETES_CA_DATA", "AZURE_KUBERNETES_SNI_NAME")
WORKLOAD = ("AZURE_FEDERATED_TOKEN_FILE", "AZURE_TENANT_ID", "AZURE_CLIENT_ID")
"""These win over managed identity; and an SDK would ask for the client ID that is set here."""
POD_IDENTITY = "AZURE_POD_IDENTITY_AUTHORITY_HOST"


def token_file(paths: Paths, *, tenant: str, client: str, authority: Authority) -> Mapping[str, str]:
    """Return the four variables that azure-workload-identity's webhook also sets."""
    return {
        "AZURE_CLIENT_ID": client,
        "AZURE_TENANT_ID": tenant,
        "AZURE_FEDERATED_TOKEN_FILE": paths.path("token"),
        "AZURE_AUTHORITY_HOST": f"{authority.url}/",
    }


def workload_identity(paths: Paths, *, tenant: str, client: str, authority: Authority) -> EnvVars:
    """Return the variables with which the SDK reads the token file and does the exchange itself."""
    values = token_file(paths, tenant=tenant, client=client, authority=authority)
    return EnvVars(values=values, unset=(*STATIC, *CHOICE, *MANAGED, *TOKEN_PROXY))


def served(at: ServedAt, identity: str) -> EnvVars:
    """Return the variables with which the SDK asks the endpoint, as a managed identity."""
    if at.dialect == "azure-imds":
        return EnvVars(values={POD_IDENTITY: at.root}, unset=(*STATIC, *CHOICE, *WORKLOAD, *MANAGED), additions=at.direct)
    values: dict[str, str | AuthorizationValue] = {
        "IDENTITY_ENDPOINT": f"{at.base}/azure/{identity}/token",
        "IDENTITY_HEADER": AuthorizationValue(authorization=at.authorization),
    }
    unset = (*STATIC, *CHOICE, *WORKLOAD, *(name for name in MANAGED if name not in values), POD_IDENTITY)
    return EnvVars(values=values, unset=unset, additions=at.direct)


def dotenv(values: Mapping[str, str]) -> str:
    """Return a dotenv file: one line for each variable."""
    return "".join(f"{name}={dotenv_value(value)}\n" for name, value in values.items())


def azure_json(paths: Paths, *, tenant: str, client: str, authority: Authority) -> str:
    """Return the part of the Kubernetes cloud provider's configuration file that names the identity.

    https://cloud-provider-azure.sigs.k8s.io/install/configs/#auth-configs
    """
    cloud = {"cloud": authority.cloud.name} if authority.cloud else {}
    document = {
        **cloud,
        "tenantId": tenant,
        "aadClientId": client,
        "aadFederatedTokenFile": paths.path("token"),
        "useFederatedWorkloadIdentityExtension": True,
    }
    return json.dumps(document, indent=2) + "\n"
