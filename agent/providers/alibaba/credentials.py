"""The keys of an Alibaba Cloud session: as STS returns them, as files hold them, as the metadata dialects serve them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from agent.model import Credential, Paths, Secret
from agent.providers.alibaba import environment
from agent.providers.alibaba.settings import AlibabaSettings
from agent.providers.exchange import TokenFileCredential

PRINTABLE = re.compile(r"[!-~]{1,16384}")
"""One header in a request."""
PROFILE = "default"
"""Of the command line's configuration, which may hold several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys that sign a request."""

    access_key_id: str
    access_key_secret: Secret
    security_token: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCredential:
    """A session of a role."""

    keys: Keys
    issued_at: datetime
    expires_at: datetime
    region: str
    """Empty if none is configured; the command line then needs an option for it."""
    token_file: Credential
    """The same identity for an SDK that does the exchange itself."""

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        """`credentials` is a `~/.aliyun/config.json`: a process reads it once, so it is for those shorter than the session.

        https://github.com/aliyun/aliyun-cli#configure
        """
        profile = {
            "name": PROFILE,
            "mode": "StsToken",
            "access_key_id": self.keys.access_key_id,
            "access_key_secret": self.keys.access_key_secret.reveal(),
            "sts_token": self.keys.security_token.reveal(),
            "sts_expiration": int(self.expires_at.timestamp()),
            "region_id": self.region,
            "output_format": "json",
            "language": "en",
        }
        text = json.dumps({"current": PROFILE, "profiles": [profile], "meta_path": ""}, indent=2) + "\n"
        return {**self.token_file.files(paths), "credentials": Secret(text)}

    def document(self) -> Mapping[str, Any]:
        return {
            "AccessKeyId": self.keys.access_key_id,
            "AccessKeySecret": self.keys.access_key_secret,
            "SecurityToken": self.keys.security_token,
            "Expiration": self.expires_at,
        }


def token_file(settings: AlibabaSettings, identity: str) -> TokenFileCredential:
    """Return the files for an SDK that does the exchange itself.

    No `credentialsFile` if the token's path cannot be written in one: a wrong one would fail far from its cause.
    """

    def files(paths: Paths) -> Mapping[str, Secret]:
        session = settings.session(identity)
        config = {
            "roleARN": settings.role_arn,
            "oidcProviderARN": settings.oidc_provider_arn,
            **({"region": settings.region} if settings.region else {}),
            "sessionName": session,
            "audiences": settings.audiences,
        }
        ini = environment.ini(paths, role=settings.role_arn, provider=settings.oidc_provider_arn, session=session)
        shown = {"config": Secret(msgspec.json.encode(config).decode())}
        return {"credentialsFile": Secret(ini), **shown} if ini else shown

    return TokenFileCredential(files)


def granted(answer: Mapping[str, Any]) -> tuple[Keys, datetime] | None:
    """Return the keys in STS's answer and when they end, UTC; None if any of it is missing or garbled."""
    given = answer.get("Credentials")
    if not isinstance(given, Mapping):
        return None
    keys = _keys(given.get("AccessKeyId"), given.get("AccessKeySecret"), given.get("SecurityToken"))
    expires_at = _moment(given.get("Expiration"))
    return (keys, expires_at) if keys and expires_at else None


def read_keys(text: str) -> Keys | None:
    """Return the keys in a `credentials` file as `SessionCredential` writes it; None if it is not one."""
    try:
        profiles = json.loads(text)["profiles"]
        found = next(one for one in profiles if one["name"] == PROFILE and one["mode"] == "StsToken")
        return _keys(found["access_key_id"], found["access_key_secret"], found["sts_token"])
    except (ValueError, RecursionError, LookupError, TypeError, StopIteration):
        return None


def _keys(*given: object) -> Keys | None:
    texts = [text for text in given if isinstance(text, str) and PRINTABLE.fullmatch(text)]
    if len(texts) != 3:
        return None
    return Keys(access_key_id=texts[0], access_key_secret=Secret(texts[1]), security_token=Secret(texts[2]))


def _moment(text: object) -> datetime | None:
    """Return a time in ISO 8601 with its zone, which STS writes as Z, in UTC; None if it is not one."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        return moment.astimezone(UTC) if moment and moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
