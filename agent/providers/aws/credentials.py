"""The keys of an AWS session: as STS returns them, as files hold them, as the metadata dialects serve them."""

import re
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as IniError
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from agent.model import Credential, Paths, Secret
from agent.providers.aws.settings import AwsSettings
from agent.providers.exchange import TokenFileCredential

PRINTABLE = re.compile(r"[!-~]{1,16384}")
"""One line in an INI file, one header in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys that sign a request."""

    access_key_id: str
    secret_access_key: Secret
    session_token: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCredential:
    """A session of a role."""

    keys: Keys
    issued_at: datetime
    expires_at: datetime
    role_arn: str
    region: str
    token_file: Credential
    """The same identity for an SDK that does the exchange itself."""

    @property
    def account_id(self) -> str:
        """Of the role."""
        return self.role_arn.split(":")[4]

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        """`credentials` is an AWS shared credentials file: a process reads it once, so it is for those shorter than the session.

        `x_security_token_expires`: the expiry, as other writers of such files name it; SDKs skip it.
        """
        ini = (
            "[default]\n"
            f"aws_access_key_id = {self.keys.access_key_id}\n"
            f"aws_secret_access_key = {self.keys.secret_access_key.reveal()}\n"
            f"aws_session_token = {self.keys.session_token.reveal()}\n"
            f"aws_account_id = {self.account_id}\n"
            f"region = {self.region}\n"
            f"x_security_token_expires = {self.expires_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}\n"
        )
        return {**self.token_file.files(paths), "credentials": Secret(ini)}

    def document(self) -> Mapping[str, Any]:
        return {
            "AccessKeyId": self.keys.access_key_id,
            "SecretAccessKey": self.keys.secret_access_key,
            "Token": self.keys.session_token,
            "Expiration": self.expires_at,
            "AccountId": self.account_id,
            "RoleArn": self.role_arn,
        }


def token_file(settings: AwsSettings, identity: str) -> TokenFileCredential:
    """Return the files for an SDK that does the exchange itself.

    No `credentialsFile` for a narrowed session: with the token alone an SDK would get the wide one.
    """

    def files(paths: Paths) -> Mapping[str, Secret]:
        session = settings.session(identity)
        ini = (
            "[default]\n"
            f"role_arn={settings.role_arn}\n"
            f"role_session_name={session}\n"
            f"web_identity_token_file={paths.path('token')}\n"
            f"region={settings.region}\n"
        )
        config = {
            "roleARN": settings.role_arn,
            "region": settings.region,
            "sessionName": session,
            "audiences": settings.audiences,
        }
        if settings.chain:
            config["chain"] = settings.roles[1:]
        shown = {"config": Secret(msgspec.json.encode(config).decode())}
        return shown if settings.narrowed else {"credentialsFile": Secret(ini), **shown}

    return TokenFileCredential(files)


def granted(answer: Mapping[str, Any]) -> tuple[Keys, datetime] | None:
    """Return the keys in STS's answer and when they end, UTC; None if any of it is missing or garbled."""
    given = answer.get("Credentials") or {}
    keys = _keys(given.get("AccessKeyId"), given.get("SecretAccessKey"), given.get("SessionToken"))
    expires_at = given.get("Expiration")
    if keys is None or not isinstance(expires_at, datetime):
        return None
    try:
        return keys, (expires_at if expires_at.tzinfo else expires_at.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:  # the last day of the year 9999, west of Greenwich
        return None


def read_keys(text: str) -> Keys | None:
    """Return the keys in a `credentials` file as `SessionCredential` writes it; None if it is not one."""
    ini = ConfigParser(interpolation=None, default_section="")
    try:
        ini.read_string(text)
        section = ini["default"]
    except (IniError, KeyError):
        return None
    return _keys(section.get("aws_access_key_id"), section.get("aws_secret_access_key"), section.get("aws_session_token"))


def _keys(*given: object) -> Keys | None:
    texts = [text for text in given if isinstance(text, str) and PRINTABLE.fullmatch(text)]
    if len(texts) != 3:
        return None
    return Keys(access_key_id=texts[0], secret_access_key=Secret(texts[1]), session_token=Secret(texts[2]))
