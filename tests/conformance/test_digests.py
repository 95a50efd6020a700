"""Each field of the settings of each source, provider and sink changes the identity's digest: found by walking the JSON Schema.

A field that did not would let an identity be handed what was made under other settings.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from agent.config.model import Config, identity_digest
from agent.config.schema import schema
from agent.settings import convert

TEXTS = (
    *("one", "two", "1h", "2h", "3h", "0600", "0604", "127.0.0.1:1", "127.0.0.1:2", "https://one.example", "https://two.example"),
    *("eu-west-1", "eu-west-2", "pod", "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"),
    *("https://one.example/.default", "https://two.example/.default", "one@p-roject.iam.gserviceaccount.com"),
    *("two@p-roject.iam.gserviceaccount.com", "one-project", "two-project", "google.one.example", "google.two.example"),
    *("arn:aws:iam::123456789012:role/one", "arn:aws:iam::123456789012:role/two"),
    *("arn:aws:iam::aws:policy/one", "arn:aws:iam::aws:policy/two"),
    *("acs:ram::12345:role/one", "acs:ram::12345:role/two", "acs:ram::12345:oidc-provider/one", "acs:ram::12345:oidc-provider/two"),
    "projects/1/locations/global/workloadIdentityPools/pool-1/providers/provider-1",
    "projects/2/locations/global/workloadIdentityPools/pool-2/providers/provider-2",
)
"""For each pattern in the schema at least two; who adds a pattern adds its texts."""
TOKENLESS = {"type": "file", "path": "x"}
PLAIN = {"type": "generic", "audiences": ["x"]}


@cache
def definitions() -> dict[str, Any]:
    found: dict[str, Any] = schema()["$defs"]
    return found


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """The schema behind a reference."""
    return definitions()[part["$ref"].rpartition("/")[2]] if "$ref" in part else part


def branches(part: dict[str, Any]) -> list[dict[str, Any]]:
    """What a value may be: one schema for each way."""
    part = resolved(part)
    ways = part.get("anyOf") or part.get("oneOf")
    return [one for way in ways for one in branches(way)] if ways else [part]


def values(part: dict[str, Any], key: str = "") -> Iterator[Any]:
    """Some values that the schema allows, no two alike."""
    for way in branches(part):
        if "enum" in way or "const" in way:
            yield from way.get("enum", [way.get("const")])
            continue
        match way.get("type"):
            case "boolean":
                yield from (True, False)
            case "integer" | "number":
                low, high = way.get("minimum", way.get("exclusiveMinimum", 0)), way.get("maximum", way.get("exclusiveMaximum", 1000))
                step = 1 if way["type"] == "integer" else (high - low) / 4
                yield from (low + step, low + 2 * step)
            case "string":
                yield from texts(way)
            case "array":
                least = max(1, way.get("minItems", 0))
                for item in values(way.get("items", {"type": "string"}), key):
                    yield [item] * least
            case "object" if "properties" in way:
                yield minimal(way)
            case "object":
                names = way.get("propertyNames", {"type": "string"})
                yield from (
                    {next(texts(resolved(names))): value} for value in values(way.get("additionalProperties") or {"type": "string"})
                )
            case None:
                yield from ("some", "other")


def texts(way: dict[str, Any]) -> Iterator[str]:
    """Those of the texts that the schema allows."""
    found = [text for text in TEXTS if re.search(way.get("pattern", ""), text)]
    least, most = way.get("minLength", 0), way.get("maxLength", 1000)
    found = [text for text in found if least <= len(text) <= most]
    assert len(found) > 1, f"add two texts of the form {way.get('pattern')}"
    yield from found


def minimal(block: dict[str, Any]) -> dict[str, Any]:
    """A block with what it must have and nothing else."""
    return {key: next(values(block["properties"][key], key)) for key in block.get("required", ())}


def variations(block: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """For each field, at any depth: its path, the block before, and the block with that field changed and nothing else."""
    block = resolved(block)
    start = minimal(block)
    for key, part in block["properties"].items():
        if key == "type" and "const" in part:
            continue
        for value in values(part, key):
            if value != start.get(key, resolved(part).get("default", part.get("default"))):
                yield f"{path}{key}", start, {**start, key: value}
                break
        else:
            assert any("properties" in one for one, _ in blocks(part)), f"no other value is known for {path}{key}"
        for one, listed in blocks(part):
            for where, before, after in variations(one, f"{path}{key}."):
                yield where, {**start, key: [before] if listed else before}, {**start, key: [after] if listed else after}


def blocks(part: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """The blocks of settings in a field, and whether they stand in a list."""
    for way in branches(part):
        listed = way.get("type") == "array"
        for one in branches(way["items"]) if listed and "items" in way else [way]:
            if "properties" in one:
                yield one, listed


def cases() -> list[Any]:
    """One for each field of each kind of source, provider and sink."""
    identity = definitions()["Identity"]["properties"]
    found = []
    for place in ("source", "provider", "sinks"):
        for way in branches(identity[place]):
            for kind in branches(way["items"]) if way.get("type") == "array" else [way]:
                tag = kind["properties"]["type"]["const"]
                for path, before, after in variations(kind):
                    named = ({"type": tag, **before}, {"type": tag, **after})
                    found.append(pytest.param(place, *named, id=f"{place} {tag} {path}"))
    return found


def digest(place: str, block: dict[str, Any]) -> str:
    identity = {"name": "x", "source": TOKENLESS, "provider": PLAIN, place: [block] if place == "sinks" else block}
    config = convert({"identities": [identity]}, Config)
    return identity_digest(config.identities[0], config)


@pytest.mark.parametrize(("place", "before", "after"), cases())
def test_each_field_changes_the_digest(place: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    assert before != after
    assert digest(place, before) == digest(place, dict(reversed(before.items())))
    assert digest(place, before) != digest(place, after)


def test_the_walk_finds_every_kind_and_goes_into_blocks() -> None:
    names = {case.id for case in cases()}
    assert {
        "source issuer subject",
        "source file path",
        "provider generic audiences",
        "provider aws chain.externalId",
        "provider azure tenantId",
        "provider gcp delegates",
        "provider alibaba oidcProviderArn",
        "sinks files directory",
    } <= names


def defaults(block: dict[str, Any]) -> dict[str, Any]:
    """Every default of a block that can be written out: an empty text stands for none, and a pattern refuses it."""
    return {key: part["default"] for key, part in resolved(block)["properties"].items() if part.get("default", "") != ""}


@pytest.mark.parametrize("place", ["source", "provider", "sinks"])
def test_a_default_that_is_written_out_does_not_change_the_digest(place: str) -> None:
    compared = 0
    for way in branches(definitions()["Identity"]["properties"][place]):
        for kind in branches(way["items"]) if way.get("type") == "array" else [way]:
            block = {"type": kind["properties"]["type"]["const"], **minimal(kind)}
            for key, value in defaults(kind).items():
                assert digest(place, block) == digest(place, {**block, key: value}), f"{block['type']} {key}"
                compared += 1
    assert compared
