"""The token part of Azure's instance metadata service.

GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=… with `Metadata: true`; callers need no
secret (https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#access). First,
azure-identity's clients probe for 1 s: any answer will do, and without the header it is 400.
"""

import re
from datetime import datetime

import msgspec

from agent.dialects import DIALECTS
from agent.record import Profile
from agent.refusals import REFUSAL_HEADER, Refusal
from agent.serving.dialect import Answer, CredentialQuery, DialectRequest
from agent.serving.dialects.azure_token import HEADERS, Objection, wanted
from agent.serving.memo import RequestCache

TOKEN = "/metadata/identity/oauth2/token"  # noqa: S105  # a path
VERSION = re.compile(r"(2018-(0[2-9]|1[0-2])|(2019|20[2-9][0-9])-[01][0-9])-[0-3][0-9]")
"""From 2018-02-01 on, the first version with tokens; all later ones get the same answer."""
NEWEST = ("2021-02-01", "2020-09-01", "2018-02-01")
SAID = {**HEADERS, "Server": "IMDS"}
CODES = {
    400: "invalid_resource",  # by the cloud, for a resource that the configuration allows
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    429: "too_many_requests",
    503: "temporarily_unavailable",
}


class AzureImds:
    """The dialect `azure-imds`."""

    name = "azure-imds"
    timeout = DIALECTS["azure-imds"].timeout
    foreign: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._queries = RequestCache()

    def matches(self, request: DialectRequest) -> bool:
        """Ignore case, as the service does; MSAL for Node ends the path with a slash."""
        return f"{request.path.lower()}/".startswith("/metadata/")

    def check(self, request: DialectRequest, profile: Profile) -> Answer | None:
        if request.http.method != "GET":
            return self.error(405, Refusal.METHOD, "only GET")
        if request.http.headers.getall("Metadata", []) != ["true"]:
            return self._object(400, Refusal.INVALID_REQUEST, "invalid_request", "Required metadata header not specified")
        return None

    def resolve(self, request: DialectRequest, profile: Profile, now: datetime) -> Answer | CredentialQuery:
        return self._queries.known(request, profile) or self._queries.keep(request, profile, self._read(request, profile))

    def error(self, status: int, code: Refusal, reason: str) -> Answer:
        return self._object(status, code, CODES[status], reason)

    def _read(self, request: DialectRequest, profile: Profile) -> Answer | CredentialQuery:
        if request.path.lower().removesuffix("/") != TOKEN:
            return self.error(404, Refusal.UNKNOWN_PATH, "there is nothing here")
        versions = request.http.query.getall("api-version", [])
        if len(versions) != 1 or not VERSION.fullmatch(versions[0]):
            body = {"error": "Bad request. api-version was not specified in the request", "newest-versions": NEWEST}
            return Answer(400, msgspec.json.encode(body), SAID | {REFUSAL_HEADER: Refusal.INVALID_REQUEST})
        found = wanted(request, profile)
        return self._object(400, found.code, found.error, found.reason) if isinstance(found, Objection) else found

    def _object(self, status: int, code: Refusal, error: str, reason: str) -> Answer:
        more = {405: {"Allow": "GET"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
        body = msgspec.json.encode({"error": error, "error_description": reason})
        return Answer(status, body, SAID | more.get(status, {}) | {REFUSAL_HEADER: code})
