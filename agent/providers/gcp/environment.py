"""The variables that make Google's SDKs and gcloud use an identity, from its files or from the endpoint.

Application Default Credentials read GOOGLE_APPLICATION_CREDENTIALS before anything else, so they need no variable unset;
gcloud has its own variables. https://cloud.google.com/docs/authentication/application-default-credentials#order
"""

from agent.envvars import EnvVars, ServedAt
from agent.model import Paths

UNIVERSE = "googleapis.com"
GCLOUD = ("CLOUDSDK_AUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT", "CLOUDSDK_CORE_ACCOUNT")
"""gcloud would prefer these, or add them."""
FILES = ("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "GOOGLE_APPLICATION_CREDENTIALS")


def from_files(paths: Paths, *, project: str, universe: str, token_file: bool, exchanged: bool) -> EnvVars:
    """Return the variables. `token_file`: there is a `credentialsFile`; `exchanged`: there is a `credentials`.

    gcloud takes the exchanged token, which costs it no request; it is a new process each time, so it never holds an old one.
    Without a project google-auth asks the Resource Manager for one, and fails if it lacks the permission.
    """
    values = {}
    if token_file:
        values["GOOGLE_APPLICATION_CREDENTIALS"] = paths.path("credentialsFile")
    if exchanged:
        values["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"] = paths.path("credentials")
    elif token_file:
        values["CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"] = paths.path("credentialsFile")
    if project:
        values |= {"GOOGLE_CLOUD_PROJECT": project, "CLOUDSDK_CORE_PROJECT": project}
    if universe != UNIVERSE:
        values |= {"GOOGLE_CLOUD_UNIVERSE_DOMAIN": universe, "CLOUDSDK_CORE_UNIVERSE_DOMAIN": universe}
    return EnvVars(values=values, unset=(*GCLOUD, *(name for name in FILES if name not in values)))


def from_endpoint(at: ServedAt) -> EnvVars:
    """Return the variables with which the SDK asks a metadata server, without first checking for a machine of Google's.

    google-auth reads one variable for tokens and another for its ping, gcloud a third. Node's SDK checks the machine's BIOS
    unless a variable says that there is a server. https://cloud.google.com/python/docs/reference/google-auth (environment variables)
    """
    values = {
        "GCE_METADATA_HOST": at.host,
        "GCE_METADATA_IP": at.host,
        "GCE_METADATA_ROOT": at.host,
        "METADATA_SERVER_DETECTION": "assume-present",
    }
    project, universe = at.facts.get("project-id"), at.facts.get("universe-domain", UNIVERSE)
    if project:
        values |= {"GOOGLE_CLOUD_PROJECT": project, "CLOUDSDK_CORE_PROJECT": project}
    if universe != UNIVERSE:
        values |= {"GOOGLE_CLOUD_UNIVERSE_DOMAIN": universe, "CLOUDSDK_CORE_UNIVERSE_DOMAIN": universe}
    return EnvVars(values=values, unset=(*GCLOUD, *FILES, "NO_GCE_CHECK", "GCE_METADATA_MTLS_MODE"), additions=at.direct)
