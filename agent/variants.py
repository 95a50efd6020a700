"""Which access token a resource means that somebody asks for at run time."""

from collections.abc import Iterable, Mapping


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
