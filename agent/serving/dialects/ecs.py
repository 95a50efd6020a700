"""Alibaba Cloud's instance metadata service, as far as SDKs ask it for credentials and for their region.

Well-known paths only (`/latest/…`), which EC2 has, too: the header tells the two services apart, or `ram/` for `iam/`. In the
hardened mode a session token first, then everything with it; without one only if `serve.ecs.v1` is set
(https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata). Clients wait 1 s and ask once.
"""

from datetime import datetime
from urllib.parse import unquote

from multidict import istr

from agent.dialects import DIALECTS
from agent.record import Profile
from agent.refusals import REFUSAL_HEADER, Refusal
from agent.serving.dialect import Answer, CredentialQuery, DialectRequest
from agent.serving.dialects import uri
from agent.serving.dialects.session_tokens import MAX_LIFETIME_SECONDS, SessionTokens
from agent.serving.memo import RequestCache

TTL, TOKEN = istr("X-aliyun-ecs-metadata-token-ttl-seconds"), istr("X-aliyun-ecs-metadata-token")
FOREIGN = (istr("X-aws-ec2-metadata-token-ttl-seconds"), istr("X-aws-ec2-metadata-token"))
HEADERS = {"Content-Type": "text/plain", "Cache-Control": "no-store"}
OPEN = "/latest/api/token"
BELOW = "/latest/meta-data/"
ROLES = "ram/security-credentials"


class Ecs:
    """The dialect `ecs`."""

    name = "ecs"
    timeout = DIALECTS["ecs"].timeout
    foreign: tuple[str, ...] = FOREIGN

    def __init__(self) -> None:
        self._tokens = SessionTokens(TTL, TOKEN)
        self._queries = RequestCache()
        self._query = CredentialQuery(uri.render)

    def matches(self, request: DialectRequest) -> bool:
        return request.path == OPEN or f"{request.path}/".startswith(BELOW)

    def check(self, request: DialectRequest, profile: Profile) -> Answer | None:
        if request.path == OPEN and request.http.method != "PUT":
            return self.error(405, Refusal.METHOD, "only PUT")
        if request.path != OPEN and request.http.method not in {"GET", "HEAD"}:
            return self.error(405, Refusal.METHOD, "only GET, and PUT of a session token")
        return None

    def resolve(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        if request.path == OPEN:
            return self._open(request, profile, now)
        if refusal := self._barred(request, profile, now):
            return refusal
        if known := self._queries.known(request, profile):
            return known
        role = profile.facts.get("role", profile.name)
        path = request.path.removeprefix(BELOW)
        if path.startswith(f"{ROLES}/") and unquote(path.removeprefix(f"{ROLES}/")) == role:
            return (
                self._query if "?" in request.http.raw_path else self._queries.keep(request, profile, self._query)
            )  # no SDK sends a query
        leaves = {ROLES: role, "region-id": profile.facts.get("region", ""), "zone-id": profile.facts.get("zone", "")}
        listings = {"/latest/meta-data": "ram/\nregion-id\nzone-id", "": "ram/\nregion-id\nzone-id", "ram": "security-credentials/"}
        text = leaves.get(path.removesuffix("/")) or listings.get(path.removesuffix("/"))
        return Answer(200, text.encode(), HEADERS) if text else self.error(404, Refusal.UNKNOWN_PATH, "there is nothing here")

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        """Return plain text where the service returns a page; SDKs show it as it is."""
        more = {405: {"Allow": "GET, HEAD, PUT"}, 503: {"Retry-After": "1"}}
        return Answer(status, f"{reason}\n".encode("utf-8", "replace"), HEADERS | more.get(status, {}) | {REFUSAL_HEADER: code})

    def _open(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer:
        opened = self._tokens.open_for(request, profile, now)
        if opened is None:
            return self.error(400, Refusal.INVALID_REQUEST, f"{TTL} must be 1 to {MAX_LIFETIME_SECONDS}")
        return Answer(200, opened[0].encode(), HEADERS)

    def _barred(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer | None:
        """Return the error for a missing token in hardened mode, or for an invalid or expired one in either mode."""
        valid = self._tokens.valid(request, profile, now)
        if valid is None and "v1" not in profile.facts:
            return self.error(403, Refusal.SESSION_TOKEN, f"a valid session token is required: request one with PUT {OPEN}")
        if valid is False:
            return self.error(401, Refusal.SESSION_TOKEN, f"the session token is invalid or expired: request one with PUT {OPEN}")
        return None
