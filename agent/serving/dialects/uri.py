"""Alibaba Cloud's credentials URI: a URL that SDKs are configured to GET.

/alibaba/NAME/AUTHORIZATION/credentials: no SDK of Alibaba's sends a header of ours, so the authorization stands in the path
(https://www.alibabacloud.com/help/en/sdk/developer-reference/v2-manage-python-access-credentials). Clients ask
once, and wait 10 s; Node's only the 5 s that it calls its connect timeout. The path is in no log and no metric.
"""

import re
from datetime import datetime

import msgspec

from agent.dialects import DIALECTS
from agent.model import Grant
from agent.record import Profile
from agent.refusals import REFUSAL_HEADER, Refusal
from agent.serving.dialect import Answer, CredentialQuery, DialectRequest, plain
from agent.serving.guard import same

PATH = re.compile(r"/([^/]+)/credentials")
HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-store"}
CODES = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 503: "NotReady"}


class Uri:
    """The dialect `uri`."""

    name = "uri"
    timeout = DIALECTS["uri"].timeout
    foreign: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._query = CredentialQuery(render)

    def matches(self, request: DialectRequest) -> bool:
        return request.named and PATH.fullmatch(request.path) is not None

    def check(self, request: DialectRequest, profile: Profile) -> Answer | None:
        if request.http.method != "GET":
            return self.error(405, Refusal.METHOD, "only GET")
        found = PATH.fullmatch(request.path)
        if not found or not same(found[1], profile.authorization):
            return self.error(401, Refusal.UNAUTHORIZED, "the path does not hold this identity's authorization")
        return None

    def resolve(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        return self._query

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        """Return a JSON error; the SDKs show its body."""
        more = {405: {"Allow": "GET"}, 503: {"Retry-After": "1"}}
        return Answer(
            status,
            msgspec.json.encode({"Code": CODES.get(status, "Refused"), "Message": reason}),
            HEADERS | more.get(status, {}) | {REFUSAL_HEADER: code},
        )


def render(grant: Grant, _profile: Profile) -> Answer:
    """Return code, keys and times, as the instance metadata service does: the Python SDK requires `Code`."""
    document = {"Code": "Success", "LastUpdated": plain(grant.credential.issued_at)}
    return Answer(200, msgspec.json.encode(document | {name: plain(value) for name, value in grant.credential.document().items()}), HEADERS)
