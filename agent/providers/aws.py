"""Amazon Web Services: STS AssumeRoleWithWebIdentity, and the files and variables its SDKs read.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
https://docs.aws.amazon.com/sdkref/latest/guide/access-assume-role-web.html
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from agent.model import IdentityToken, Legacy, Paths, Secret
from agent.settings import Settings
from agent.toolbox import Toolbox

RoleArn = Annotated[str, msgspec.Meta(pattern=r"^arn:aws[a-z0-9-]*:iam::[0-9]{12}:role(/[A-Za-z0-9_+=,.@-]+)+$", max_length=2048)]
Region = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,}(-[a-z0-9]+)+$", max_length=64)]


class AwsSettings(Settings, tag="aws", tag_field="type"):
    """The role to take, and where."""

    role_arn: RoleArn
    region: Region
    session_name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_+=,.@-]{2,64}$")] | None = None
    audiences: tuple[str, ...] = ("sts.amazonaws.com",)
    exchange: bool = True


def session_name(settings: AwsSettings, identity: str) -> str:
    """The configured one, or one that is the same at every start, so that CloudTrail shows one actor; at most 64 characters."""
    if settings.session_name:
        return settings.session_name
    tail = hashlib.sha256(f"{identity}\0{settings.role_arn}".encode()).hexdigest()[:8]
    return f"wi-{re.sub(r'[^A-Za-z0-9_+=,.@-]', '-', identity)[:52]}-{tail}"


class TokenFileCredential:
    """What an SDK needs to do the exchange itself. Holds no secret and no clock of its own."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None

    def __init__(self, settings: AwsSettings, identity: str) -> None:
        self._settings = settings
        self._session_name = session_name(settings, identity)

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        settings = self._settings
        ini = (
            "[default]\n"
            f"role_arn={settings.role_arn}\n"
            f"role_session_name={self._session_name}\n"
            f"web_identity_token_file={paths.path('token')}\n"
            f"region={settings.region}\n"
        )
        config = {"roleARN": settings.role_arn, "region": settings.region, "sessionName": self._session_name, "audiences": settings.audiences}
        return {"credentialsFile": Secret(ini), "config": Secret(msgspec.json.encode(config).decode())}

    def document(self) -> Mapping[str, Any]:
        return {}


class AwsProvider:
    """Leaves the exchange to the SDK."""

    host = ""

    def __init__(self, settings: AwsSettings, identity: str, toolbox: Toolbox) -> None:
        self._settings = settings
        self._identity = identity
        self.audiences = settings.audiences

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> TokenFileCredential:
        return TokenFileCredential(self._settings, self._identity)

    def restore(self, legacy: Legacy) -> TokenFileCredential:
        return TokenFileCredential(self._settings, self._identity)


def environment(settings: AwsSettings, identity: str, paths: Paths) -> Mapping[str, str]:
    """What makes an SDK take this identity from its files."""
    return {
        "AWS_ROLE_ARN": settings.role_arn,
        "AWS_ROLE_SESSION_NAME": session_name(settings, identity),
        "AWS_WEB_IDENTITY_TOKEN_FILE": paths.path("token"),
        "AWS_REGION": settings.region,
        "AWS_DEFAULT_REGION": settings.region,
    }
