"""The variables that make Google's SDKs and gcloud use an identity, from its files or from the endpoint.

Application Default Credentials look at GOOGLE_APPLICATION_CREDENTIALS before anything else, so nothing has to be cleared
for them; gcloud has its own. https://cloud.google.com/docs/authentication/application-default-credentials#order
"""

from agent.envvars import EnvVars, ServedAt
from agent.model import Paths

UNIVERSE = "googleapis.com"
GCLOUD = ("CLOUDSDK_AUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT", "CLOUDSDK_CORE_ACCOUNT")
"""What gcloud would prefer, or add."""
FILES = ("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "GOOGLE_APPLICATION_CREDENTIALS")


def from_files(paths: Paths, *, project: str, universe: str, token_file: bool, exchanged: bool) -> EnvVars:
    """`token_file`: there is a `credentialsFile`; `exchanged`: there is a `credentials`.

    gcloud takes the exchanged token, which costs it no request; it is a new process each time, so it never holds an old one.
    Without a project google-auth asks the Resource Manager for one, and fails where it may not.
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


def from_endpoint(spot: ServedAt) -> EnvVars:
    """The SDK asks a metadata server, without looking first whether this is a machine of Google's.

    google-auth asks one variable for tokens and another for its ping, gcloud a third. Node's looks for a machine's BIOS
    unless told that there is a server. https://cloud.google.com/python/docs/reference/google-auth (environment variables)
    """
    values = {
        "GCE_METADATA_HOST": spot.host,
        "GCE_METADATA_IP": spot.host,
        "GCE_METADATA_ROOT": spot.host,
        "METADATA_SERVER_DETECTION": "assume-present",
    }
    project, universe = spot.facts.get("project-id"), spot.facts.get("universe-domain", UNIVERSE)
    if project:
        values |= {"GOOGLE_CLOUD_PROJECT": project, "CLOUDSDK_CORE_PROJECT": project}
    if universe != UNIVERSE:
        values |= {"GOOGLE_CLOUD_UNIVERSE_DOMAIN": universe, "CLOUDSDK_CORE_UNIVERSE_DOMAIN": universe}
    return EnvVars(values=values, unset=(*GCLOUD, *FILES, "NO_GCE_CHECK", "GCE_METADATA_MTLS_MODE"), additions=spot.direct)
