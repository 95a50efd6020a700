"""Explains why a configuration was refused: every error at once, each with its line.

msgspec stops at the first error. So the JSON Schema of the same structs finds every error of the structure, the broken
parts are taken out, and the rules run over the rest, except those that would conclude from a part that was taken out.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from agent.config import wording
from agent.config.document import Document
from agent.config.fault import MAX_FAULTS, Fault, Finding, Place, by_line
from agent.config.model import Config, Identity
from agent.config.remainder import Remainder
from agent.config.rules import findings, placed
from agent.config.schema import schema
from agent.config.wording import nearest
from agent.providers.azure.authority import Authority
from agent.settings import Address, Duration, FileMode, Scalar, Url, convert

if TYPE_CHECKING:
    from jsonschema import ValidationError

__all__ = ["explain", "nearest"]

SCALARS: dict[str, type[Scalar]] = {kind.__name__: kind for kind in (Address, Authority, Duration, FileMode, Url)}


class Complaint(NamedTuple):
    """An error of the structure."""

    place: Place
    message: str
    meant: Place | None = None
    """The key that an unknown key probably stands for: no rule concludes from its absence."""
    unknown: bool = False
    """The key is unknown."""


def explain(document: Document, environ: Mapping[str, str]) -> tuple[list[Fault], list[Fault]]:
    """Return faults and warnings of a document that is not a valid Config, each in the order of the lines."""
    if not isinstance(document.data, dict):
        message = f"{wording.reading(document.data, '')}: write {wording.NOUNS['object']}, such as `identities:`"
        return [*document.faults, document.fault((), message)], []
    told = {fault.place for fault in document.faults}
    complaints = list(islice((complaint for complaint in _structural(document) if complaint.place not in told), MAX_FAULTS + 1))
    if len(document.faults) + len(complaints) > MAX_FAULTS:  # finding more takes time, and depends on the rest of the file
        wrong = document.faults + [document.fault(complaint.place, complaint.message) for complaint in complaints]
        return sorted(wrong, key=by_line), []
    bad = {place for place in told if not isinstance(_at(document.data, place), dict | list)}
    unwanted = {complaint.place for complaint in complaints if complaint.unknown}
    remainder = Remainder(document, unwanted, bad | {complaint.place for complaint in complaints if not complaint.unknown})
    config = remainder.convert()
    faults = document.faults + [document.fault(place, message) for place, message in remainder.complaints]
    misspelt = {complaint.meant for complaint in complaints}  # reported at the misspelt key only, not as missing besides
    faults += [document.fault(complaint.place, complaint.message) for complaint in complaints if complaint.place not in misspelt]
    broken = remainder.dropped | {complaint.meant for complaint in complaints if complaint.meant}
    around = {place[:depth] for place in broken for depth in range(len(place))}
    found = (remainder.original(finding) for finding in findings(config, environ)) if config else iter(())
    refused, warnings = placed(document, (finding for finding in found if not _rests_on(finding, broken, around)))
    return sorted(faults + refused, key=by_line), warnings


def _at(data: Any, place: Place) -> Any:
    for step in place:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _rests_on(finding: Finding, broken: set[Place], around: set[Place]) -> bool:
    grounds = (finding.place, *finding.rests_on)
    return any(ground in around or any(ground[:depth] in broken for depth in range(len(ground) + 1)) for ground in grounds)


def _structural(document: Document) -> Iterator[Complaint]:
    import jsonschema  # noqa: PLC0415  # costs 6 MB and 0.1 s, paid for a bad file only
    from jsonschema.validators import extend  # noqa: PLC0415

    keywords = {"items": _items, "scalar": _scalar, "oneOf": _branch, "anyOf": _any, "type": _type}
    make = cast("Callable[..., Callable[[Any], Any]]", extend)  # untyped
    validator = make(jsonschema.Draft202012Validator, keywords)(
        schema(lambda kind: {"scalar": kind.__name__, "description": SCALARS[kind.__name__].allowed})
    )
    for error in validator.iter_errors(document.data):
        yield from _worded(error, document)


def _items(validator: Any, items: Any, value: object, schema: Any) -> Iterator["ValidationError"]:
    """As JSON Schema's, but check only identities that msgspec refuses: msgspec reads a thousand while jsonschema reads one."""
    del schema
    identities = items.get("$ref") == "#/$defs/Identity"
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if not (identities and _is_identity(item)):
            yield from validator.descend(item, items, path=index)


def _is_identity(item: object) -> bool:
    try:
        convert(item, Identity)
    except msgspec.ValidationError:
        return False
    return isinstance(item, dict) and all("type" in sink for sink in item.get("sinks", ()))


def _scalar(validator: Any, name: str, value: object, schema: Any) -> Iterator["ValidationError"]:
    """A keyword of ours: the scalar's own parser decides."""
    del validator, schema
    try:
        if isinstance(value, str):
            SCALARS[name].parse(value)
            return
    except ValueError:
        pass
    yield _error("not a scalar")


def _branch(validator: Any, branches: object, value: object, schema: Any) -> Iterator["ValidationError"]:
    """`oneOf`: the branch that `type` names, and no other."""
    del branches
    choice = schema["discriminator"]
    if not isinstance(value, dict):
        yield from validator.descend(value, {"type": "object", "required": ["type"]}, schema_path="type")
    elif isinstance(value.get("type"), str) and value["type"] in choice["mapping"]:
        yield from validator.descend(value, {"$ref": choice["mapping"][value["type"]]})
    elif "type" in value:
        yield from validator.descend(value["type"], {"enum": list(choice["mapping"])}, path="type", schema_path="type")
    else:
        yield from validator.descend(value, {"required": ["type"], "choices": list(choice["mapping"])}, schema_path="required")


def _any(validator: Any, branches: list[Any], value: object, schema: Any) -> Iterator["ValidationError"]:
    """`anyOf`: one branch besides null, or several of different types: the one of the value's type, and no other."""
    del schema
    if {"type": "null"} in branches and value is None:
        return
    branches = [branch for branch in branches if branch != {"type": "null"}]
    if len(branches) == 1:
        yield from validator.descend(value, branches[0])
    else:
        shapes = {branch.get("type") or ("object" if "$ref" in branch else "string"): branch for branch in branches}
        shape = next((branch for kind, branch in shapes.items() if validator.is_type(value, kind)), {"type": list(shapes)})
        yield from validator.descend(value, shape)


def _type(validator: Any, types: str | list[str], value: object, schema: Any) -> Iterator["ValidationError"]:
    """As JSON Schema's, except that 4.0 is not a whole number, as in msgspec."""
    del schema
    wanted = [types] if isinstance(types, str) else types
    if not any(validator.is_type(value, kind) and not (kind == "integer" and isinstance(value, float)) for kind in wanted):
        yield _error("another type")


def _home(key: str, place: Place) -> str:
    """Return where a key belongs that is indented too far; empty for any other key."""
    if key in Identity.__struct_encode_fields__[1:] and place[:1] == ("identities",) and len(place) > 2:
        return "to the identity, beside its name"
    return "to the top of the file" if key in Config.__struct_encode_fields__ and place else ""


def _error(message: str) -> "ValidationError":
    from jsonschema import ValidationError  # noqa: PLC0415  # as above

    return ValidationError(message)


def _worded(error: "ValidationError", document: Document) -> Iterator[Complaint]:
    place: Place = tuple(error.absolute_path)
    schema, value = cast("dict[str, Any]", error.schema), cast("Any", error.instance)
    match error.validator:
        case "scalar":
            yield Complaint(place, wording.of_scalar(SCALARS[schema["scalar"]], value, place, document))
        case "type":
            yield Complaint(place, wording.of_type(schema, value, place, document))
        case "enum" | "const":
            yield Complaint(place, wording.of_choice(value, schema.get("enum") or [schema["const"]], place))
        case "required":
            for key in schema["required"]:
                if key not in value:
                    yield Complaint((*place, key), wording.of_missing(key, schema.get("choices"), schema.get("properties", {}).get(key)))
        case "additionalProperties":
            known = list(schema["properties"])
            for key in value:
                if isinstance(key, str) and key not in known:
                    home = _home(key, place)
                    meant = None if home else nearest(key, [each for each in known if each not in value])
                    yield Complaint((*place, key), wording.of_key(meant, known, home), (*place, meant) if meant else None, unknown=True)
        case _:
            yield Complaint(place, wording.of_limit(error, place))
