"""What a good answer looks like to the SDKs of each dialect: what they parse, and when it ends. Of its secrets only that they are there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent.doctor.endpoint_requests import Reply

SESSION = "a session"
TOKEN = "an access token"  # noqa: S105  # a name
FAR = 1 << 40
"""Seconds that no credential lives."""
GIVEN = "%Y-%m-%dT%H:%M:%SZ"
"""The one form of a time that every SDK parses."""


@dataclass(frozen=True, slots=True)
class Brought:
    """A credential, without the credential."""

    what: str
    until: datetime | None
    """When it ends; None where the answer does not say so."""
    lacking: Sequence[str] = ()
    """What this dialect's SDKs look for and would not find."""

    @property
    def text(self) -> str:
        return f"{self.what} until {self.until:{GIVEN}}" if self.until else self.what


def brought(dialect: str, reply: Reply, resource: str, now: datetime) -> Brought:
    """What a 200 in this dialect brings. `resource`: what Azure's were asked for."""
    answer = reply.answer
    match dialect:
        case "container":
            return _session(answer, ("AccessKeyId", "SecretAccessKey", "Token"))
        case "imds":
            return _session(answer, ("AccessKeyId", "SecretAccessKey", "Token"), code=True)
        case "uri" | "ecs":
            return _session(answer, ("AccessKeyId", "AccessKeySecret", "SecurityToken"), code=True)
        case "gce":
            found = _token(answer, {"access_token": _text, "expires_in": _number, "token_type": _text}, _seconds(answer, now))
            marks = {
                "Metadata-Flavor: Google": reply.flavour == "Google",
                "Content-Type: application/json": reply.kind == "application/json",
            }
            return Brought(TOKEN, found.until, [*found.lacking, *(mark for mark, there in marks.items() if not there)])
        case _:  # Azure's: MSAL reads `expires_in` here and `expires_on` there
            wanted = {"access_token": _text, "expires_in": _digits, "expires_on": _digits, "token_type": _text, "resource": resource.__eq__}
            return _token(answer, wanted, _epoch(answer))


def _session(answer: Mapping[str, Any], names: Sequence[str], *, code: bool = False) -> Brought:
    until = _moment(answer.get("Expiration"))
    lacking = [name for name in names if not _text(answer.get(name))]
    if (
        code and answer.get("Code") != "Success"
    ):  # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html
        lacking.append("Code: Success")
    return Brought(SESSION, until, [*lacking, *([] if until else ["Expiration"])])


def _token(answer: Mapping[str, Any], wanted: Mapping[str, Callable[[Any], Any]], until: datetime | None) -> Brought:
    return Brought(TOKEN, until, [name for name, suits in wanted.items() if suits(answer.get(name)) is not True])


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _digits(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit()


def _moment(value: object) -> datetime | None:
    try:
        return datetime.strptime(str(value), GIVEN).replace(tzinfo=UTC)
    except ValueError:
        return None


def _seconds(answer: Mapping[str, Any], now: datetime) -> datetime | None:
    left = answer.get("expires_in")
    return _at(now.timestamp() + left) if isinstance(left, int) and _number(left) and abs(left) < FAR else None


def _epoch(answer: Mapping[str, Any]) -> datetime | None:
    return _at(int(answer["expires_on"][:16])) if _digits(answer.get("expires_on")) else None


def _at(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
