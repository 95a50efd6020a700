"""The members that each dialect's SDKs read from an answer, and its expiry. Of secrets, only whether they are present."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent.doctor.endpoint_requests import Reply

SESSION = "a session"
TOKEN = "an access token"  # noqa: S105  # a name
MAX_LIFETIME_SECONDS = 1 << 40
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""The only form of a time that every SDK parses."""


@dataclass(frozen=True, slots=True)
class AnswerSummary:
    """Kind, expiry and missing members of a credential, without its secrets."""

    what: str
    until: datetime | None
    """Its expiry; None if the answer has none."""
    lacking: Sequence[str] = ()
    """Members and headers that this dialect's SDKs read and the answer does not have."""

    @property
    def text(self) -> str:
        return f"{self.what} until {self.until:{TIME_FORMAT}}" if self.until else self.what


def summarise(dialect: str, reply: Reply, resource: str, now: datetime) -> AnswerSummary:
    """Return a summary of a 200 in this dialect. `resource`: the one requested in Azure's dialects."""
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
            return AnswerSummary(TOKEN, found.until, [*found.lacking, *(mark for mark, there in marks.items() if not there)])
        case _:  # Azure's: MSAL reads `expires_in` here and `expires_on` there
            wanted = {"access_token": _text, "expires_in": _digits, "expires_on": _digits, "token_type": _text, "resource": resource.__eq__}
            return _token(answer, wanted, _epoch(answer))


def _session(answer: Mapping[str, Any], names: Sequence[str], *, code: bool = False) -> AnswerSummary:
    until = _moment(answer.get("Expiration"))
    lacking = [name for name in names if not _text(answer.get(name))]
    if (
        code and answer.get("Code") != "Success"
    ):  # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html
        lacking.append("Code: Success")
    return AnswerSummary(SESSION, until, [*lacking, *([] if until else ["Expiration"])])


def _token(answer: Mapping[str, Any], wanted: Mapping[str, Callable[[Any], Any]], until: datetime | None) -> AnswerSummary:
    return AnswerSummary(TOKEN, until, [name for name, suits in wanted.items() if suits(answer.get(name)) is not True])


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _digits(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit()


def _moment(value: object) -> datetime | None:
    try:
        return datetime.strptime(str(value), TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _seconds(answer: Mapping[str, Any], now: datetime) -> datetime | None:
    left = answer.get("expires_in")
    return _at(now.timestamp() + left) if isinstance(left, int) and _number(left) and abs(left) < MAX_LIFETIME_SECONDS else None


def _epoch(answer: Mapping[str, Any]) -> datetime | None:
    return _at(int(answer["expires_on"][:16])) if _digits(answer.get("expires_on")) else None


def _at(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
