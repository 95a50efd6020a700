"""The variables that make AWS's SDKs use an identity, from its files or from the endpoint.

Order of AWS's chain: static keys, profile, web identity, container endpoint, instance metadata; so the one way that is
set clears what would win over it. https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
"""

from agent.envvars import EnvVars, ServedAt, Variable
from agent.model import Paths

STATIC = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE")
WEB_IDENTITY = ("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE")
CONTAINER = (
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
)


def web_identity(paths: Paths, *, role_arn: str, session: str, region: str, endpoint: str | None) -> EnvVars:
    """The SDK reads the token file and does the exchange itself."""
    return EnvVars(
        values={
            "AWS_ROLE_ARN": role_arn,
            "AWS_ROLE_SESSION_NAME": session,
            "AWS_WEB_IDENTITY_TOKEN_FILE": paths.path("token"),
            **_region(region),
            **({"AWS_ENDPOINT_URL_STS": endpoint} if endpoint else {}),
        },
        unset=(*STATIC, *CONTAINER),
    )


def shared_file(paths: Paths, *, region: str) -> EnvVars:
    """The SDK reads exchanged keys, once: for processes shorter than the session."""
    return EnvVars(
        values={"AWS_SHARED_CREDENTIALS_FILE": paths.path("credentials"), **_region(region)}, unset=(*STATIC, *WEB_IDENTITY, *CONTAINER)
    )


def served(spot: ServedAt, identity: str, *, region: str) -> EnvVars:
    """The SDK asks the endpoint."""
    return (_imds if spot.dialect == "imds" else _container)(spot, identity, region)


def _imds(spot: ServedAt, identity: str, region: str) -> EnvVars:
    """At the root where there is one: the SDK for JavaScript drops a path. Region is said, for the SDKs differ in asking for it."""
    return EnvVars(
        values={
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": spot.root or f"{spot.base}/aws/{identity}/imds",
            "AWS_EC2_METADATA_V1_DISABLED": "true",
            **_region(region),
        },
        unset=(*STATIC, *WEB_IDENTITY, *CONTAINER, "AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"),
        additions=spot.direct,
    )


def _container(spot: ServedAt, identity: str, region: str) -> EnvVars:
    authorization = spot.authorization
    presented = (
        {"AWS_CONTAINER_AUTHORIZATION_TOKEN": authorization}
        if isinstance(authorization, Variable)
        else {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": authorization}
    )
    return EnvVars(
        values={
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{spot.base}/aws/{identity}/credentials",
            **presented,
            "AWS_EC2_METADATA_DISABLED": "true",
            **_region(region),
        },
        unset=(*STATIC, *WEB_IDENTITY, *(name for name in CONTAINER if name not in presented and not name.endswith("FULL_URI"))),
        additions=spot.direct,
    )


def _region(region: str) -> dict[str, str]:
    return {"AWS_REGION": region, "AWS_DEFAULT_REGION": region}
