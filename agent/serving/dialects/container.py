"""AWS container credentials, as ECS and EKS Pod Identity serve them, on any loopback URL.

GET /aws/NAME/credentials with the raw authorization token in `Authorization`
(https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html). Clients wait 2 s, three times, 1 s
apart, and retry after any status but 200.
"""

from datetime import datetime

import msgspec

from agent.dialects import DIALECTS
from agent.model import Grant
from agent.record import Profile
from agent.refusals import REFUSAL_HEADER, Refusal
from agent.serving.dialect import Answer, CredentialQuery, DialectRequest, plain
from agent.serving.guard import is_authorized

HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-store"}


class Container:
    """The dialect `container`."""

    name = "container"
    timeout = DIALECTS["container"].timeout
    foreign: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._query = CredentialQuery(self.render)

    def matches(self, request: DialectRequest) -> bool:
        return request.named and request.path == "/credentials"

    def check(self, request: DialectRequest, profile: Profile) -> Answer | None:
        if request.http.method != "GET":
            return self.error(405, Refusal.METHOD, "only GET")
        if not is_authorized(request.http, profile.authorization):
            return self.error(401, Refusal.UNAUTHORIZED, "the Authorization header does not hold this identity's authorization")
        return None

    def resolve(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        return self._query

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        """Return a JSON error: botocore shows no body, the others show `code` and `message`."""
        body = msgspec.json.encode({"code": _CODES.get(status, "Refused"), "message": reason})
        return Answer(
            status,
            body,
            HEADERS
            | {REFUSAL_HEADER: code}
            | ({"Retry-After": "1"} if status == 503 else {})
            | ({"Allow": "GET"} if status == 405 else {}),
        )

    def render(self, grant: Grant, _profile: Profile | None = None) -> Answer:
        return Answer(200, msgspec.json.encode({name: plain(value) for name, value in grant.credential.document().items()}), HEADERS)


_CODES = {401: "AccessDenied", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 503: "NotReady"}
