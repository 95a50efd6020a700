"""Writes the reference in `docs/configuration.md` from the JSON Schema of the configuration.

The allowed values come from the schema, their meanings from `configuration_meanings.yaml`. Run this after adding
settings; a test compares the result with the page, and requires the meaning of every key.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from agent.config.schema import schema

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "configuration.md"
MEANINGS = Path(__file__).with_name("configuration_meanings.yaml")
BEGIN, END = "<!-- reference: begin -->\n", "<!-- reference: end -->\n"
HEADINGS = {
    "Config": "Top level",
    "Refresh": "refresh",
    "BackoffSettings": "refresh.backoff",
    "Control": "control",
    "Admin": "admin",
    "Metadata": "metadata",
    "IssuerBlock": "issuer",
    "Lifetime": "issuer.lifetime",
    "Rotation": "issuer.rotation",
    "Shutdown": "shutdown",
    "Tenancy": "tenancy",
    "Identity": "identities[]",
    "IdentityRefresh": "identities[].refresh",
    "Serve": "identities[].serve",
    "ImdsFacts": "identities[].serve.imds",
    "GceFacts": "identities[].serve.gce",
    "EcsFacts": "identities[].serve.ecs",
}
"""The heading of each block, as users write it; the headings of sources, providers and sinks are their role and tag."""
PARTS = {
    "ChainedRole": "provider aws: chain[]",
    "ServiceAccount": "source kubernetes: serviceAccount",
    "BoundTo": "source kubernetes: boundTo",
}
"""Headings of blocks within one source or provider."""
PLURALS = {"block": "blocks", "text": "texts", "address": "addresses"}
PATTERNS = {
    "a number and a unit": "duration",
    "a quoted octal": "mode",
    "an http": "URL",
    "host:port": "address",
    "public,": "`public`, `usgovernment`, `china` or URL",
}
"""The name of each scalar on the page, by the beginning of its description."""


def rendered() -> str:
    """Return the whole page."""
    before, _, rest = TARGET.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + reference() + END + after


def reference() -> str:
    """Return the generated part: one table for each block, in the order of `HEADINGS`, then sources, providers and sinks."""
    blocks = schema()["$defs"]
    headings = HEADINGS | kinds(blocks) | PARTS
    headings |= {name: f"block {name}" for name in blocks if name not in headings}
    meanings = yaml.safe_load(MEANINGS.read_text())
    return "".join(table(heading, blocks[name], meanings.get(name, {})) for name, heading in headings.items() if name in blocks)


def kinds(blocks: dict[str, Any]) -> dict[str, str]:
    """Return headings such as `source issuer`, by struct."""
    found: dict[str, str] = {}
    for role in ("source", "provider"):
        found |= {target: f"{role} {tag}" for tag, target in _tags(blocks["Identity"]["properties"][role])}
    found |= {target: f"sink {tag}" for tag, target in _tags(blocks["Identity"]["properties"]["sinks"]["items"])}
    return found


def undescribed() -> list[str]:
    """Return keys without a meaning, and meanings without a key."""
    meanings = yaml.safe_load(MEANINGS.read_text())
    keys = {(name, key) for name, block in schema()["$defs"].items() for key in block["properties"] if key != "type"}
    said = {(name, key) for name, texts in meanings.items() for key in texts}
    return [".".join(pair) for pair in sorted(keys ^ said)]


def table(heading: str, block: dict[str, Any], meanings: dict[str, str]) -> str:
    lines = [f"\n### {heading}\n\n{block['description']}\n\n", "| key | what to write | default | meaning |\n", "|---|---|---|---|\n"]
    required = set(block.get("required", ()))
    for key, value in block["properties"].items():
        if key == "type":
            continue
        default = "**required**" if key in required else _default(value)
        lines.append(f"| `{key}` | {what(value)} | {default} | {meanings.get(key, '')} |\n")
    return "".join(lines if len(lines) > 3 else lines[:1])


def what(value: dict[str, Any]) -> str:
    """Return the allowed values, in a few words."""
    if "anyOf" in value:
        return " or ".join(what(each) for each in value["anyOf"] if each.get("type") != "null")
    if "$ref" in value:
        return "block"
    if "enum" in value:
        return " or ".join(f"`{each}`" for each in sorted(value["enum"]))
    if "oneOf" in value:
        return "block with `type:` " + " or ".join(f"`{tag}`" for tag, _ in _tags(value))
    if value.get("type") == "array":
        word = what(value["items"])
        return f"list of {PLURALS.get(word, word.replace('block with', 'blocks with', 1))}"
    if value.get("type") == "object":
        return "mapping"
    for beginning, word in PATTERNS.items():
        if value.get("description", "").startswith(beginning):
            return word
    return {"string": "text", "integer": "number", "number": "number", "boolean": "`true` or `false`"}[value["type"]] + _limits(value)


def _limits(value: dict[str, Any]) -> str:
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below", "maxLength": "at most"}
    said = [f"{word} {value[limit]}" for limit, word in words.items() if limit in value]
    return f", {' '.join(said)}" if said else ""


def _default(value: dict[str, Any]) -> str:
    default = value.get("default")
    return "" if default is None or default in ({}, [], "") else f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _tags(choice: dict[str, Any]) -> list[tuple[str, str]]:
    return [(tag, target.rpartition("/")[2]) for tag, target in choice["discriminator"]["mapping"].items()]


if __name__ == "__main__":
    TARGET.write_text(rendered())
