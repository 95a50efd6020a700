"""Alibaba Cloud's instance metadata service, as far as SDKs ask it for credentials and for their region.

Well-known paths only (`/latest/…`), which are EC2's, too: the header tells whose is meant, or `ram/` for `iam/`. In the
hardened mode a session token first, then everything with it; without one only where `serve.ecs.v1` says so
(https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata). Clients wait 1 s and ask once.
"""

from datetime import datetime
from urllib.parse import unquote

from multidict import istr

from agent.record import Profile
from agent.refusals import REFUSAL_HEADER, Refusal
from agent.serving.dialect import Answer, CredentialQuery, DialectRequest
from agent.serving.dialects import uri
from agent.serving.dialects.session_tokens import Presented, Sessions
from agent.serving.memo import RequestCache

TTL, TOKEN = istr("X-aliyun-ecs-metadata-token-ttl-seconds"), istr("X-aliyun-ecs-metadata-token")
FOREIGN = (istr("X-aws-ec2-metadata-token-ttl-seconds"), istr("X-aws-ec2-metadata-token"))
LONGEST = 21600
"""Seconds of a session token."""
HEADERS = {"Content-Type": "text/plain", "Cache-Control": "no-store"}
OPEN = "/latest/api/token"
BELOW = "/latest/meta-data/"
ROLES = "ram/security-credentials"


class Ecs:
    """The dialect `ecs`."""

    name = "ecs"
    prefix = ""
    rooted = True
    patience = 0.9
    foreign: tuple[str, ...] = FOREIGN

    def __init__(self) -> None:
        self._sessions = Sessions()
        self._presented = Presented(self._sessions)
        self._questions = RequestCache()
        self._want = CredentialQuery(uri.render)

    def knows(self, visit: DialectRequest) -> bool:
        return visit.path == OPEN or f"{visit.path}/".startswith(BELOW)

    def admits(self, visit: DialectRequest, profile: Profile) -> Answer | None:
        if visit.path == OPEN and visit.request.method != "PUT":
            return self.error(405, Refusal.METHOD, "only PUT")
        if visit.path != OPEN and visit.request.method not in {"GET", "HEAD"}:
            return self.error(405, Refusal.METHOD, "only GET, and PUT of a session token")
        return None

    def wants(self, visit: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        if visit.path == OPEN:
            return self._open(visit, profile, now)
        if refusal := self._barred(visit, profile, now):
            return refusal
        if known := self._questions.known(visit, profile):
            return known
        role = profile.facts.get("role", profile.name)
        path = visit.path.removeprefix(BELOW)
        if path.startswith(f"{ROLES}/") and unquote(path.removeprefix(f"{ROLES}/")) == role:
            return self._want if "?" in visit.request.raw_path else self._questions.keep(visit, profile, self._want)  # no SDK sends a query
        leaves = {ROLES: role, "region-id": profile.facts.get("region", ""), "zone-id": profile.facts.get("zone", "")}
        listings = {"/latest/meta-data": "ram/\nregion-id\nzone-id", "": "ram/\nregion-id\nzone-id", "ram": "security-credentials/"}
        text = leaves.get(path.removesuffix("/")) or listings.get(path.removesuffix("/"))
        return Answer(200, text.encode(), HEADERS) if text else self.error(404, Refusal.UNKNOWN_PATH, "there is nothing here")

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        """The service sends a page, and SDKs show what comes."""
        more = {405: {"Allow": "GET, HEAD, PUT"}, 503: {"Retry-After": "1"}}
        return Answer(status, f"{reason}\n".encode("utf-8", "replace"), HEADERS | more.get(status, {}) | {REFUSAL_HEADER: code})

    def _open(self, visit: DialectRequest, profile: Profile, now: datetime) -> Answer:
        sent = visit.request.headers.getall(TTL, [])
        if len(sent) != 1 or not (sent[0].isascii() and sent[0].isdigit() and len(sent[0]) <= 5) or not 1 <= int(sent[0]) <= LONGEST:
            return self.error(400, Refusal.INVALID_REQUEST, f"{TTL} has to be 1 to {LONGEST}")
        return Answer(200, self._sessions.open(profile.name, int(sent[0]), now).encode(), HEADERS)

    def _barred(self, visit: DialectRequest, profile: Profile, now: datetime) -> Answer | None:
        """Without a token the hardened mode forbids; one that is wrong or has ended is refused in either mode."""
        sent = visit.request.headers.getall(TOKEN, [])
        if not sent:
            return None if "v1" in profile.facts else self.error(403, Refusal.SESSION_TOKEN, f"a session token is wanted: PUT {OPEN}")
        if len(sent) != 1 or not self._presented.knows(sent[0], profile.name, now):
            return self.error(401, Refusal.SESSION_TOKEN, f"this session token is not known here, or has ended: PUT {OPEN}")
        return None
