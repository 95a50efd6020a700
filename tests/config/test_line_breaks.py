"""No setting ends in a line break: Python's `$`, and so msgspec's, lets one follow, and a name that does would end a header or a line.

A file is refused for it before any pattern is asked; the patterns refuse it too, because annotations of cluster objects and
requests are judged by them alone.
"""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest

from agent.config.document import parse
from agent.config.schema import schema
from agent.settings import Scalar, convert
from tests.conformance.test_digests import TEXTS

FREE = {"identities[].provider.policy"}
"""A document of its own, sent as it is written."""
SPECIMENS = (*TEXTS, "p-1", "1", "europe-west1-b", "eu-west-1a", "one.example", "unix:/run/a", ":80", "a@b.example")


def strings(part: dict[str, Any], path: str = "", within: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place of the configuration where text is written, with its schema."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        if name not in within:
            yield from strings(DEFINITIONS[name], path, (*within, name))
        return
    for way in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        yield from strings(way, path, within)
    for key, below in part.get("properties", {}).items():
        yield from strings(below, f"{path}.{key}", within)
    for key in ("items", "additionalProperties"):
        if isinstance(part.get(key), dict):
            yield from strings(part[key], f"{path}[]", within)
    if part.get("type") == "string":
        yield path.lstrip("."), part


WHOLE = schema()
DEFINITIONS = WHOLE["$defs"]
STRINGS = dict.fromkeys((path, part.get("pattern"), part.get("minLength", 0)) for path, part in strings(WHOLE))


@pytest.mark.parametrize(("path", "pattern", "least"), [case for case in STRINGS if case[1]])
def test_a_line_break_after_a_matching_text_is_refused(path: str, pattern: str, least: int) -> None:
    fitting = [text for text in SPECIMENS if re.search(pattern, text) and len(text) >= least]
    assert fitting, f"add a text for {path}: {pattern}"
    judged = Annotated[str, msgspec.Meta(pattern=pattern)]
    for text in fitting:
        assert convert(text, judged) == text
        with pytest.raises(msgspec.ValidationError):
            convert(text + "\n", judged)


def test_the_walk_finds_settings_with_and_without_patterns() -> None:
    found = {path for path, _, _ in STRINGS}
    assert {"identities[].name", "identities[].provider.roleArn", "identities[].source.subject", "control.socket"} <= found
    assert {"identities[].provider.sessionName", "identities[].serve.imds.availabilityZone", "refresh.timeout"} <= found
    assert len(found) > 60


@pytest.mark.parametrize("kind", Scalar.__subclasses__(), ids=lambda kind: kind.__name__)
def test_no_scalar_is_read_from_a_text_that_ends_in_a_line_break(kind: type[Scalar]) -> None:
    read = 0
    for text in SPECIMENS:
        try:
            kind.parse(text)
        except ValueError:
            continue
        read += 1
        with pytest.raises(ValueError, match="write"):
            kind.parse(text + "\n")
    assert read


@pytest.mark.parametrize("path", sorted({path for path, _, _ in STRINGS} - FREE))
def test_a_file_is_refused_where_any_text_ends_in_a_line_break(path: str) -> None:
    value: Any = "text\n"
    for step in reversed(path.replace("[]", ".[]").split(".")):
        value = [value] if step == "[]" else {step: value}
    faults = parse(json.dumps(value)).faults
    assert [fault.message for fault in faults] == ["the text holds a line break or control character: write it in one line"]
