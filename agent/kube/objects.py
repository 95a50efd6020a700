"""The parts of objects that the agent reads. All else is skipped while parsing, so it takes neither time nor memory."""

from typing import Any, TypedDict

import msgspec

LONGEST_BYTES = 3 * 1024 * 1024
"""Of an object: the API server takes no longer request, and etcd keeps half of that."""

FEW_BYTES = 64 * 1024
"""Of a body that is parsed however dense it is."""
MOST_VALUES, MOST_TEXTS = 20_000, 100_000
"""In a longer one: objects and lists, and texts. 3 MiB of empty objects take 0.4 s, and 100 MiB of memory."""


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
    if _dense(body):
        return None
    try:
        found = _LIST.decode(body)
    except (ValueError, RecursionError):
        return None
    return found.get("metadata", {}).get("resourceVersion", ""), tuple(dict(item) for item in found.get("items") or ())


def changed(line: bytes | bytearray) -> tuple[str, dict[str, Any]] | None:
    """Return the type in lower case, and the object or Status, of one line of a watch; None if it is neither."""
    if _dense(line):
        return None
    try:
        change = _CHANGE.decode(line)
        kind = change.type.lower()
        return kind, dict((_STATUS if kind == "error" else _OBJECT).decode(change.object))
    except (ValueError, RecursionError):
        return None


def _dense(body: bytes | bytearray) -> bool:
    """Return whether the body holds more values than any object of an API server does; they are made all at once."""
    if len(body) <= FEW_BYTES:
        return False
    return body.count(b"{") + body.count(b"[") > MOST_VALUES or body.count(b'"') > 2 * MOST_TEXTS
