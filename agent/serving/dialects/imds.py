"""EC2's instance metadata service, as far as SDKs ask it for credentials and for their region.

At well-known paths (`/latest/…`) or below `/aws/NAME/imds`. Version 2: a session token first, then everything with it
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html); without one only if `serve.imds.v1`
is set. Clients wait 1 s and ask once.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import unquote

import msgspec
from multidict import istr

from agent.dialects import DIALECTS
from agent.model import Grant
from agent.record import Profile
from agent.refusals import REFUSAL_HEADER, Refusal
from agent.serving.dialect import Answer, CredentialQuery, DialectRequest, plain
from agent.serving.dialects.session_tokens import MAX_LIFETIME_SECONDS, SessionTokens
from agent.serving.memo import RequestCache

TTL, TOKEN = istr("X-aws-ec2-metadata-token-ttl-seconds"), istr("X-aws-ec2-metadata-token")
SERVER = {"Server": "EC2ws", "Cache-Control": "no-store"}
TEXT = {**SERVER, "Content-Type": "text/plain"}
"""For JSON, too: EC2 uses one media type for everything."""
ROLES = "meta-data/iam/security-credentials"
PREFIX = "/imds"
FOREIGN = (istr("X-aliyun-ecs-metadata-token"), istr("X-aliyun-ecs-metadata-token-ttl-seconds"))
"""Headers of Alibaba Cloud's service, which has the same paths."""
ALIBABAS = ("/latest/meta-data/ram", "/latest/meta-data/region-id", "/latest/meta-data/zone-id")


class Imds:
    """The dialect `imds`."""

    name = "imds"
    timeout = DIALECTS["imds"].timeout
    foreign: tuple[str, ...] = FOREIGN

    def __init__(self) -> None:
        self._tokens = SessionTokens(TTL, TOKEN)
        self._queries = RequestCache()
        self._query = CredentialQuery(_credential)

    def matches(self, request: DialectRequest) -> bool:
        path = request.path
        if request.named:
            return path.startswith(PREFIX + "/") or path == PREFIX
        ours = path in {"/latest", "/latest/"} or path.startswith(("/latest/api/", "/latest/meta-data", "/latest/dynamic"))
        return ours and not path.startswith(ALIBABAS)

    def check(self, request: DialectRequest, profile: Profile) -> Answer | None:
        """Refuse methods that EC2 does not have. The guard refuses forwarded requests, and `resolve` checks the session token."""
        method = request.http.method
        if method not in {"GET", "HEAD"} and not (method == "PUT" and _path(request) == "api/token"):
            return self.error(405, Refusal.METHOD, "only GET, and PUT of a session token")
        return None

    def resolve(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        if request.http.method == "PUT":
            return self._open(request, profile, now)
        may = self._may(request, profile, now)
        if may and (known := self._queries.known(request, profile)):
            return known
        path = _path(request)
        if path == "api/token":
            return self.error(405, Refusal.METHOD, "only PUT")
        if not may:
            return self.error(401, Refusal.SESSION_TOKEN, "a valid session token is required: request one with PUT latest/api/token")
        role = profile.facts.get("role", profile.name)
        if path.startswith(f"{ROLES}/") and unquote(path.removeprefix(f"{ROLES}/")) == role:
            return (
                self._query if "?" in request.http.raw_path else self._queries.keep(request, profile, self._query)
            )  # no SDK sends a query
        return self._describe(path, profile, now)

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        """Return plain text where EC2 returns a page, which SDKs do not read."""
        more = {401: {"WWW-Authenticate": "X-aws-ec2-metadata-token"}, 405: {"Allow": "GET, HEAD, PUT"}, 503: {"Retry-After": "1"}}
        return Answer(status, f"{reason}\n".encode(), TEXT | more.get(status, {}) | {REFUSAL_HEADER: code})

    def _open(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer:
        opened = self._tokens.open_for(request, profile, now)
        if opened is None:
            return self.error(400, Refusal.INVALID_REQUEST, f"{TTL} must be 1 to {MAX_LIFETIME_SECONDS}")
        token, lifetime = opened
        return Answer(200, token.encode(), {**TEXT, "X-Aws-Ec2-Metadata-Token-Ttl-Seconds": lifetime})

    def _may(self, request: DialectRequest, profile: Profile, now: datetime) -> bool:
        """Return whether the request may read: an invalid token is refused even if none is needed, as EC2 does."""
        valid = self._tokens.valid(request, profile, now)
        return "v1" in profile.facts if valid is None else valid

    def _describe(self, path: str, profile: Profile, now: datetime) -> Answer:
        """Answer paths that need no credential, with and without a final slash, as boto3 requests the zone."""
        leaves, asked = _leaves(profile, now), path.rstrip("/")
        if asked in leaves:
            return Answer(200, leaves[asked].encode(), TEXT)
        below = asked + "/" if asked else ""
        paths = (f"{one}/" if one == ROLES else one for one in leaves)
        entries = sorted({"".join(one.removeprefix(below).partition("/")[:2]) for one in paths if one.startswith(below)})
        return Answer(200, "\n".join(entries).encode(), TEXT) if entries else self.error(404, Refusal.UNKNOWN_PATH, "there is nothing here")


def _path(request: DialectRequest) -> str:
    """Return the path below `latest/`; `..`, which names nothing, if it is not below."""
    path = request.path.removeprefix(PREFIX) if request.named else request.path
    return path.removeprefix("/latest/") if path.startswith("/latest/") else "" if path == "/latest" else ".."


def _credential(grant: Grant, _profile: Profile) -> Answer:
    issued = grant.credential.issued_at
    document = {"Code": "Success", "LastUpdated": plain(issued), "Type": "AWS-HMAC"}
    document |= {name: plain(value) for name, value in grant.credential.document().items() if name != "RoleArn"}
    return Answer(200, msgspec.json.encode(document), TEXT)


def _leaves(profile: Profile, now: datetime) -> Mapping[str, str]:
    """Return the readable values by path. The names of instance and profile are made up: the identity has neither."""
    facts = profile.facts
    role, partition, region, account = (facts.get(name, "") for name in ("role", "partition", "region", "account"))
    role, zone = role or profile.name, facts.get("availability-zone") or f"{region}a"
    instance = f"i-{_digest(profile.name)}"
    info = {
        "Code": "Success",
        "LastUpdated": plain(now),
        "InstanceProfileArn": f"arn:{partition or 'aws'}:iam::{account}:instance-profile/{role}",
        "InstanceProfileId": f"AIPA{_digest(role).upper()}",
    }
    document = {
        "accountId": account,
        "architecture": platform.machine(),
        "availabilityZone": zone,
        "instanceId": instance,
        "region": region,
        "version": "2017-09-30",
    }
    return {
        ROLES: role,
        "meta-data/iam/info": json.dumps(info, indent=2),
        "meta-data/instance-id": instance,
        "meta-data/placement/availability-zone": zone,
        "meta-data/placement/region": region,
        "meta-data/services/domain": "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com",
        "meta-data/services/partition": partition or "aws",
        "dynamic/instance-identity/document": json.dumps(document, indent=2),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:17]
