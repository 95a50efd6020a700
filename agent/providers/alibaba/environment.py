"""The variables and the file that make Alibaba's SDKs use an identity, from its files or from the endpoint.

Order of their chain: static keys, OIDC token file, the command line's profile, the INI profile, ECS metadata, credentials
URI. What would win over the token file is cleared; what would be taken when STS fails once is switched off, because the
SDKs stay with whatever answered first.
https://www.alibabacloud.com/help/en/sdk/developer-reference/v2-manage-python-access-credentials
"""

import re

from agent.envvars import LOOPBACK, AuthorizationValue, EnvVars, ServedAt
from agent.model import Paths

STATIC = ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN", "ALIBABA_CLOUD_PROFILE")
OIDC = ("ALIBABA_CLOUD_ROLE_ARN", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "ALIBABA_CLOUD_OIDC_TOKEN_FILE", "ALIBABA_CLOUD_ROLE_SESSION_NAME")
ENDPOINT = ("ALIBABA_CLOUD_CREDENTIALS_URI", "ALIBABA_CLOUD_ECS_METADATA")
PROXY = ("HTTP_PROXY", "http_proxy")
"""The Python SDK sends requests for the endpoint there, authorization and all, whatever NO_PROXY says; https is not concerned."""
WRITABLE = re.compile(r"[^#%;\s]+")
"""A value that each SDK reads alike in an INI file: the Python SDK cuts it at `#` and takes `%` for the start of a reference."""


def ini(paths: Paths, *, role: str, provider: str, session: str) -> str | None:
    """A profile of `~/.alibabacloud/credentials.ini`; None where the token file's path cannot be said in one."""
    path = paths.path("token")
    if not WRITABLE.fullmatch(path):
        return None
    return (
        "[default]\n"
        "type = oidc_role_arn\n"
        f"role_arn = {role}\n"
        f"oidc_provider_arn = {provider}\n"
        f"oidc_token_file_path = {path}\n"
        f"role_session_name = {session}\n"
    )


def token_file(paths: Paths, *, role: str, provider: str, session: str, region: str, vpc: bool) -> EnvVars:
    """The SDK reads the token file and does the exchange itself."""
    where = {"ALIBABA_CLOUD_STS_REGION": region} if region else {}
    network = {"ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED": "true"} if vpc else {}
    profile = {"ALIBABA_CLOUD_CREDENTIALS_FILE": paths.path("credentialsFile")} if WRITABLE.fullmatch(paths.path("token")) else {}
    chosen = {**where, **network, **profile}
    optional = ("ALIBABA_CLOUD_STS_REGION", "ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED", "ALIBABA_CLOUD_CREDENTIALS_FILE")
    return EnvVars(
        values={
            "ALIBABA_CLOUD_ROLE_ARN": role,
            "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": provider,
            "ALIBABA_CLOUD_OIDC_TOKEN_FILE": paths.path("token"),
            "ALIBABA_CLOUD_ROLE_SESSION_NAME": session,
            **chosen,
            "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
            "ALIBABA_CLOUD_CLI_PROFILE_DISABLED": "true",
        },
        unset=(*STATIC, *ENDPOINT, *(name for name in optional if name not in chosen)),
    )


def served(spot: ServedAt, identity: str, *, role: str) -> EnvVars:
    """The SDK asks the endpoint; what would win over it is cleared or switched off.

    `ecs`: at 100.100.100.200, which is in the SDKs, and for this role, which spares them the question for its name.
    """
    alone = {"ALIBABA_CLOUD_CLI_PROFILE_DISABLED": "true"}
    unset = (*STATIC, *OIDC, *PROXY, "ALIBABA_CLOUD_CREDENTIALS_FILE")
    if spot.dialect == "ecs":
        chosen = {"ALIBABA_CLOUD_ECS_METADATA": role} if role else {}
        return EnvVars(
            values={**chosen, "ALIBABA_CLOUD_IMDSV1_DISABLED": "true", **alone},
            unset=(*unset, "ALIBABA_CLOUD_ECS_METADATA_DISABLED", *(name for name in ENDPOINT if name not in chosen)),
            additions={name: f"{value},100.100.100.200" for name, value in LOOPBACK.items()},
        )
    uri = AuthorizationValue(before=f"{spot.base}/alibaba/{identity}/", authorization=spot.authorization, after="/credentials")
    return EnvVars(
        values={"ALIBABA_CLOUD_CREDENTIALS_URI": uri, "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true", **alone},
        unset=(*unset, "ALIBABA_CLOUD_ECS_METADATA"),
        additions=LOOPBACK,
    )
