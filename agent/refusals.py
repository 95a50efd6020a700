"""The codes of the metadata endpoint's own errors, sent in a header beside the sentence.

The sentence is for people and may be reworded. The doctor recognises the agent by the code; SDKs ignore the header.
"""

from enum import StrEnum

REFUSAL_HEADER = "X-Wi-Agent-Refusal"


class Refusal(StrEnum):
    """Why the endpoint refused a request. The values stay the same between releases."""

    FORWARDED = "forwarded"
    """403: a proxy forwarded the request."""
    WRONG_HOST = "wrong-host"
    """403: `Host` names neither a listener nor a cloud's metadata service."""
    NOT_LOCAL = "not-local"
    """403: the client is on another machine."""
    UNKNOWN_PATH = "unknown-path"
    """404: the path belongs to no dialect of a served identity, or its dialect has no such item."""
    UNKNOWN_IDENTITY = "unknown-identity"
    """404: the path names an identity that is not configured, or not served in this dialect."""
    METHOD = "method"
    """405."""
    INVALID_REQUEST = "invalid-request"
    """400, 403, 404: a header or parameter is missing or invalid."""
    UNAUTHORIZED = "unauthorized"
    """401: the request does not contain the identity's authorization."""
    SESSION_TOKEN = "session-token"  # noqa: S105  # a code
    """401, 403: the session token is missing, invalid or expired."""
    NOT_ALLOWED = "not-allowed"
    """400: the configuration does not allow the resource or scope."""
    REJECTED = "rejected"
    """400: the cloud rejects the resource, scope or audience."""
    TOO_MANY_VARIANTS = "too-many-variants"
    """429: clients asked for more resources, scopes or audiences of this identity than the agent keeps."""
    NOT_READY = "not-ready"
    """503: the identity has no valid credential yet."""
    TOO_MANY_WAITING = "too-many-waiting"
    """503: too many requests already wait for a first credential."""
    SETTINGS_CHANGED = "settings-changed"
    """503: the identity's settings changed while the request was answered."""
