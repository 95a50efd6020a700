"""Grammar of run-time variants: the access token that a requested resource means."""

import re
from collections.abc import Iterable, Mapping

SCOPE_PATTERN = r"[!#-\[\]-~]{1,256}"  # RFC 6749, section 3.3
GOOGLE_SCOPE = re.compile(SCOPE_PATTERN, re.ASCII)
GOOGLE_AUDIENCE = re.compile(r"[!-~]{1,512}", re.ASCII)
CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
MAX_SCOPES = 32
"""Google scopes of one token that a client may ask for at run time."""
ID_TOKEN_PREFIX = "id:"  # noqa: S105  # a prefix
"""Precedes the audience in a variant that is a Google-signed ID token."""


def variant_of(resource: str, own: str, others: Iterable[str]) -> str | None:
    """Under what it is kept: empty for the identity's `own`, else the one of `others` that is meant; None for any other.

    A slash at the end makes no difference to who may ask: SDKs differ in it. The token is for what is configured.
    """
    wanted = resource.removesuffix("/")
    if own and wanted == own.removesuffix("/"):
        return ""
    return next((one for one in others if wanted == one.removesuffix("/")), None)


def facts(client_id: str, own: str, others: Iterable[str]) -> Mapping[str, str]:
    """What the metadata dialects have to know to ask that."""
    found = {"client-id": client_id, "resource": own, "resources": " ".join(others)}
    return {name: value for name, value in found.items() if value}
