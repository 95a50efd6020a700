"""Google's metadata server as GKE presents it to a pod: the data that SDKs and gcloud read before a token, and the token.

Well-known paths only (`/computeMetadata/v1/…`): no client keeps a path before them. Every answer has
`Metadata-Flavor: Google`; without it, clients take the server for another
(https://cloud.google.com/compute/docs/metadata/querying-metadata). Clients wait 3 s and take 404 and 403 as final.
"""

import hashlib
import re
from datetime import datetime
from urllib.parse import unquote

from multidict import istr

from agent.dialects import DIALECTS
from agent.model import Grant
from agent.record import Profile
from agent.refusals import REFUSAL_HEADER, Refusal
from agent.serving.dialect import Answer, Countdown, CredentialQuery, DialectRequest, Rendered
from agent.serving.dialects.gce_tree import Leaf, listed, read, tree_of, written
from agent.serving.memo import RequestCache
from agent.variants import CLOUD_PLATFORM, GOOGLE_AUDIENCE, GOOGLE_SCOPE, ID_TOKEN_PREFIX, MAX_SCOPES

FLAVOR = istr("Metadata-Flavor")
HEADERS = {
    FLAVOR: "Google",
    "Server": "GKE Metadata Server",
    "X-XSS-Protection": "0",
    "X-Frame-Options": "SAMEORIGIN",
    "Cache-Control": "no-store",
}
TEXT = {**HEADERS, "Content-Type": "application/text"}
JSON = {**HEADERS, "Content-Type": "application/json"}
"""google-auth parses JSON only with this media type."""
HTML = {**HEADERS, "Content-Type": "text/html; charset=UTF-8"}
ROOT = "/computeMetadata/v1/"
ACCOUNTS = "instance/service-accounts/"


class Gce:
    """The dialect `gce`."""

    name = "gce"
    timeout = DIALECTS["gce"].timeout
    foreign: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._queries = RequestCache()

    def matches(self, request: DialectRequest) -> bool:
        return request.path in {"/", "/computeMetadata"} or request.path.startswith("/computeMetadata/")

    def check(self, request: DialectRequest, profile: Profile) -> Answer | None:
        sent = request.http
        if sent.method not in {"GET", "HEAD"}:
            return self.error(405, Refusal.METHOD, "only GET")
        if request.path == "/" or sent.headers.getall(FLAVOR, []) == ["Google"] or sent.headers.get("X-Google-Metadata-Request") == "True":
            return None
        return self.error(403, Refusal.INVALID_REQUEST, f'Missing required header "{FLAVOR}": "Google"')

    def resolve(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        return self._queries.known(request, profile) or self._queries.keep(request, profile, self._read(request, profile))

    def _read(self, request: DialectRequest, profile: Profile) -> Answer | CredentialQuery:
        if not request.path.startswith(ROOT):
            return self._above(request)
        path = request.path.removeprefix(ROOT)
        account, _, item = path.removeprefix(ACCOUNTS).partition("/") if path.startswith(ACCOUNTS) else ("", "", "")
        if item in {"token", "identity"}:
            if unquote(account) not in {"default", profile.facts.get("email")}:
                return self.error(404, Refusal.INVALID_REQUEST, f"there is no service account {unquote(account)!r}")
            return self._token(request, profile) if item == "token" else self._identity(request, profile)
        return self._describe(request, path, profile)

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        """Return plain text where Google returns a page; SDKs show it as it is."""
        more = {405: {"Allow": "GET, HEAD"}, 503: {"Retry-After": "1"}}
        return Answer(status, f"{reason}\n".encode("utf-8", "replace"), HTML | more.get(status, {}) | {REFUSAL_HEADER: code})

    def _above(self, request: DialectRequest) -> Answer:
        """Answer the directories above v1; earlier versions no longer exist."""
        match request.path:
            case "/":
                return Answer(200, b"computeMetadata/\n", TEXT)
            case "/computeMetadata/":
                return Answer(200, b"v1/\n", TEXT)
            case "/computeMetadata" | "/computeMetadata/v1":
                return self._onwards(request)
            case _:
                return self.error(404, Refusal.UNKNOWN_PATH, "there is nothing here")

    def _onwards(self, request: DialectRequest) -> Answer:
        """Redirect to the directory's path with a final slash. The guard has checked `Host`."""
        query = request.http.raw_path.partition("?")[1:]
        return Answer(301, b"", {**HTML, "Location": f"http://{request.http.headers['Host']}{request.path}/{''.join(query)}"})

    def _token(self, request: DialectRequest, profile: Profile) -> Answer | CredentialQuery:
        """Return the query for a token of the requested scopes, in any order.

        No scopes, or the configured ones, mean the identity's own token. So does `cloud-platform` alone if it is configured: SDKs
        ask for it by default, and scopes besides it grant nothing more.
        """
        texts = ",".join(request.http.query.getall("scopes", []))
        scopes = sorted({scope for scope in re.split(r"[, ]", texts) if scope})
        if len(scopes) > MAX_SCOPES or not all(GOOGLE_SCOPE.fullmatch(scope) for scope in scopes):
            return self.error(400, Refusal.INVALID_REQUEST, "the scopes are invalid: send up to 32, separated by commas")
        configured = sorted(profile.facts.get("scopes", "").split())
        usual = scopes in ([], configured) or (scopes == [CLOUD_PLATFORM] and CLOUD_PLATFORM in configured)
        allowed = profile.facts.get("scopes-allowed", "").split()
        if allowed and not usual and (foreign := sorted(set(scopes) - set(allowed))):
            return self.error(400, Refusal.NOT_ALLOWED, f"not allowed: name {foreign[0]!r} in provider.scopesAllowed")
        return CredentialQuery(_access_token, variant="" if usual else " ".join(scopes), shape="token")

    def _identity(self, request: DialectRequest, profile: Profile) -> Answer | CredentialQuery:
        """Return the query for an ID token of the service account, signed by Google and never by another issuer, for any audience."""
        if not profile.facts.get("account"):
            return self.error(
                404,
                Refusal.INVALID_REQUEST,
                "the identity acts as no service account, and only those have ID tokens: set provider.serviceAccount",
            )
        audiences = request.http.query.getall("audience", [])
        if len(audiences) != 1 or not GOOGLE_AUDIENCE.fullmatch(audiences[0]):
            return self.error(400, Refusal.INVALID_REQUEST, "non-empty audience parameter required")
        if request.http.query.get("format", "standard") not in {"standard", "full"}:
            return self.error(400, Refusal.INVALID_REQUEST, "format has to be standard or full")
        return CredentialQuery(_id_token, variant=f"{ID_TOKEN_PREFIX}{audiences[0]}", shape="identity")

    def _describe(self, request: DialectRequest, path: str, profile: Profile) -> Answer:
        query = request.http.query
        node = read(tree_of(profile), unquote(path))
        alternative = query.get("alt", "")
        if node is None:
            return self.error(404, Refusal.UNKNOWN_PATH, "there is nothing here")
        if alternative not in {"", "json", "text"}:
            return self.error(400, Refusal.INVALID_REQUEST, "alt has to be json or text")
        if isinstance(node, Leaf):
            body, json = written(node, json=alternative == "json"), alternative == "json"
        elif path and not path.endswith("/"):
            return self._onwards(request)
        elif query.get("recursive", "").lower() == "true":
            json = alternative != "text"
            body = written(node, json=json, named=path)
        else:
            body, json = listed(node), False
        return Answer(200, body, (JSON if json else TEXT) | {"ETag": hashlib.sha256(body).hexdigest()[:16]})


def _access_token(grant: Grant, profile: Profile) -> Rendered:
    document = grant.credential.document()
    before = b'{"access_token":"%s","expires_in":' % document["access_token"].reveal().encode()
    return Countdown(before, b',"token_type":"Bearer"}', document["expires_at"], JSON)


def _id_token(grant: Grant, profile: Profile) -> Rendered:
    return Answer(200, grant.credential.document()["id_token"].reveal().encode(), HTML)
