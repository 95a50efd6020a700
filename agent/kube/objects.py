"""The parts of objects that the agent reads. All else is skipped while parsing, so it takes neither time nor memory."""

from typing import Any, TypedDict

import msgspec

LONGEST_BYTES = 3 * 1024 * 1024
"""Of an object: the API server takes no longer request, and etcd keeps half of that."""


class Metadata(TypedDict, total=False):
    """Of an object: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/."""

    namespace: str
    name: str
    uid: str
    resourceVersion: str
    deletionTimestamp: str | None
    annotations: dict[str, str] | None


class Object(TypedDict, total=False):
    """Any."""

    metadata: Metadata


class Details(TypedDict, total=False):
    """Of a Status."""

    kind: str
    name: str


class Status(TypedDict, total=False):
    """A refusal: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/."""

    kind: str
    code: int
    reason: str
    message: str
    details: Details | None


class List(TypedDict, total=False):
    """Of objects."""

    metadata: Metadata
    items: list[Object] | None


class Change(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


_LIST, _CHANGE = msgspec.json.Decoder(List), msgspec.json.Decoder(Change)
_OBJECT, _STATUS = msgspec.json.Decoder(Object), msgspec.json.Decoder(Status)


def listed(body: bytes | bytearray) -> tuple[str, tuple[dict[str, Any], ...]] | None:
    """Return resourceVersion and objects of a list; None if it is not a list."""
    try:
        found = _LIST.decode(body)
    except (ValueError, RecursionError):
        return None
    return found.get("metadata", {}).get("resourceVersion", ""), tuple(dict(item) for item in found.get("items") or ())


def changed(line: bytes | bytearray) -> tuple[str, dict[str, Any]] | None:
    """Return the type in lower case, and the object or Status, of one line of a watch; None if it is neither."""
    try:
        change = _CHANGE.decode(line)
        kind = change.type.lower()
        return kind, dict((_STATUS if kind == "error" else _OBJECT).decode(change.object))
    except (ValueError, RecursionError):
        return None
