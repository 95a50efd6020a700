"""The JSON Schema (2020-12) of the configuration, from the same structs that read it.

msgspec's own `json.schema` cannot encode a default that is a scalar of ours, so its `inspect` is walked instead.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect

from agent.config.model import Config
from agent.settings import describe_scalar, encode_scalar

Describe = Callable[[type], dict[str, Any]]
LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}
PLAIN: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
}


def schema(describe: Describe = describe_scalar) -> dict[str, Any]:
    """Return the schema of a configuration file. `describe` returns the schema of a scalar."""
    structs: dict[str, Any] = {}
    top = _describe(inspect.type_info(Config), structs, describe)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of workload-identity-agent",
        "description": "Identities that the agent keeps fresh: the sources of their tokens, the clouds, the sinks and the endpoint.",
        **top,
        "$defs": structs,
    }


def _describe(kind: inspect.Type, structs: dict[str, Any], describe: Describe) -> dict[str, Any]:
    match kind:
        case inspect.StructType() | inspect.UnionType():
            return _structs(kind, structs, describe)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return {"type": "array", "items": _describe(item, structs, describe)}
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _describe(value, structs, describe)}
        case inspect.LiteralType(values=values):
            return {"enum": list(values)}
        case inspect.CustomType(cls=cls):
            return describe(cls)
        case inspect.Metadata(type=inner, extra_json_schema=extra):
            return {**_describe(inner, structs, describe), **(extra or {})}
        case inspect.AnyType():
            return {}
        case _:
            limits = {name: getattr(kind, ours, None) for ours, name in LIMITS.items()}
            return {"type": PLAIN[type(kind)], **{name: limit for name, limit in limits.items() if limit is not None}}


def _structs(kind: inspect.StructType | inspect.UnionType, structs: dict[str, Any], describe: Describe) -> dict[str, Any]:
    types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    kinds = [each for each in types if isinstance(each, inspect.StructType) and each.tag_field]
    if len(kinds) == len(types):
        return _choice(kinds, structs, describe)
    if isinstance(kind, inspect.UnionType):
        return {"anyOf": [_describe(each, structs, describe) for each in kind.types]}
    return _struct(kind, structs, describe)


def _choice(kinds: list[inspect.StructType], structs: dict[str, Any], describe: Describe) -> dict[str, Any]:
    branches = {str(kind.tag): _struct(kind, structs, describe) for kind in kinds}
    mapping = {tag: branch["$ref"] for tag, branch in branches.items()}
    return {"oneOf": list(branches.values()), "discriminator": {"propertyName": kinds[0].tag_field, "mapping": mapping}}


def _struct(kind: inspect.StructType, structs: dict[str, Any], describe: Describe) -> dict[str, Any]:
    name = kind.cls.__name__
    reference = {"$ref": f"#/$defs/{name}"}
    if name in structs:
        return reference
    structs[name] = {}
    properties = {field.encode_name: _field(field, structs, describe) for field in kind.fields}
    required = [field.encode_name for field in kind.fields if field.required]
    if kind.tag_field:
        properties = {kind.tag_field: {"const": kind.tag}, **properties}
        required.insert(0, kind.tag_field)
    structs[name] |= {
        "title": name,
        **({"description": text.strip().split("\n\n")[0]} if (text := kind.cls.__doc__) else {}),  # no docstrings under `python -OO`
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        structs[name]["required"] = required
    return reference


def _field(field: inspect.Field, structs: dict[str, Any], describe: Describe) -> dict[str, Any]:
    described = _describe(field.type, structs, describe)
    if field.default is not msgspec.NODEFAULT:
        described = {**described, "default": msgspec.to_builtins(field.default, enc_hook=encode_scalar, str_keys=True)}
    elif field.default_factory is not msgspec.NODEFAULT:
        described = {**described, "default": msgspec.to_builtins(field.default_factory(), enc_hook=encode_scalar, str_keys=True)}
    return described
