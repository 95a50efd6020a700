"""Azure App Service's token endpoint, on any loopback URL: the only Azure endpoint whose callers send an authorization.

GET /azure/NAME/token?api-version=2019-08-01&resource=…, with the authorization in `X-IDENTITY-HEADER`
(https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference). Clients have no
timeout, retry after 429 and 5xx, and in Python treat 404 as final.
"""

from datetime import datetime

import msgspec
from multidict import istr

from agent.dialects import DIALECTS
from agent.record import Profile
from agent.refusals import REFUSAL_HEADER, Refusal
from agent.serving.dialect import Answer, CredentialQuery, DialectRequest
from agent.serving.dialects.azure_token import HEADERS, Objection, wanted
from agent.serving.guard import is_authorized
from agent.serving.memo import RequestCache

HEADER = istr("X-IDENTITY-HEADER")
VERSION = "2019-08-01"
"""The earlier version has other names for everything, and no maintained SDK requests it."""


class AppService:
    """The dialect `appservice`."""

    name = "appservice"
    timeout = DIALECTS["appservice"].timeout
    foreign: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._queries = RequestCache()

    def matches(self, request: DialectRequest) -> bool:
        return request.named and request.path.removesuffix("/") == "/token"

    def check(self, request: DialectRequest, profile: Profile) -> Answer | None:
        if request.http.method != "GET":
            return self.error(405, Refusal.METHOD, "only GET")
        if not is_authorized(request.http, profile.authorization, HEADER):
            return self.error(401, Refusal.UNAUTHORIZED, "X-IDENTITY-HEADER does not hold this identity's authorization")
        return None

    def resolve(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        return self._queries.known(request, profile) or self._queries.keep(request, profile, self._read(request, profile))

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        more = {405: {"Allow": "GET"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
        return Answer(
            status, msgspec.json.encode({"statusCode": status, "message": reason}), HEADERS | more.get(status, {}) | {REFUSAL_HEADER: code}
        )

    def _read(self, request: DialectRequest, profile: Profile) -> Answer | CredentialQuery:
        if request.http.query.getall("api-version", []) != [VERSION]:
            return self.error(400, Refusal.INVALID_REQUEST, f"api-version has to be {VERSION}")
        found = wanted(request, profile)
        return self.error(400, found.code, found.reason) if isinstance(found, Objection) else found
