"""Messages about refused settings: the error and the allowed values, for people, without a value that may be secret."""

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from agent.config.document import Document
from agent.config.fault import Place
from agent.settings import Duration, FileMode, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jsonschema import ValidationError

CONFIDENTIAL = {"authorization", "proxy", "endpoint", "url", "tokenUrl", "claims", "policy", "externalId"}
"""Keys whose values are never repeated."""
ALLOWED = {
    "identities": "a list of identities, or `identities: []` to withdraw all that are running",
    "name": "lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
    "subject": "printable ASCII without spaces, such as system:serviceaccount:demo:web",
    "roleArn": "an IAM role such as arn:aws:iam::123456789012:role/web",
    "region": "a region such as eu-west-1",
    "sessionName": "2 to 64 letters, digits or any of _+=,.@-",
}
"""The allowed form, by key."""
MAX_WORD_CHARACTERS = 40
NO_BREAK = r"(?!\n)"
"""The end of each pattern, which messages leave out."""
NOUNS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list, such as [a, b]",
    "object": "a block of keys and values",
}


def nearest(word: str, known: "Iterable[str]") -> str | None:
    """Return the known word that was probably meant; None for a word too long to be one, as comparing it takes long."""
    if len(word) > MAX_WORD_CHARACTERS:
        return None
    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[found[0]] if found else None


def listed(words: "Iterable[object]") -> str:
    """Return the words with commas between."""
    return ", ".join(str(word) for word in words)


def quoted(value: object, place: Place) -> str:
    """Return the value in quotes if it is short text and cannot be secret, else `this`."""
    plain = isinstance(value, str) and len(value) <= 40 and value.isprintable() and "://" not in value and "@" not in value
    return f"{value!r}" if plain and not CONFIDENTIAL & set(place) else "this"


def of_scalar(kind: type[Scalar], value: object, place: Place, document: Document) -> str:
    """Return the message about a scalar's refused value."""
    written = document.text(place)
    if isinstance(value, str):
        try:
            kind.parse(value)
        except ValueError as error:
            if len(value) <= 40:
                return str(error)
        return f"not what can be used here: write {kind.allowed}"
    if isinstance(value, bool) or value is None:
        return f"{reading(value, written)}: write {kind.allowed}"
    if kind is Duration and written.isdigit():
        return f"a unit is missing: write {written}s, {written}m, {written}h or {written}d"
    if kind is FileMode and isinstance(value, int):
        example = written if written.isdigit() and len(written) in {3, 4} else "0640"
        return f'not quoted, and YAML reads it as the number {value}: write "{example}" in quotes'
    return f"{reading(value, written)}: write {kind.allowed}"


def of_type(schema: "Mapping[str, Any]", value: object, place: Place, document: Document) -> str:
    """Return the message about a value of another type than the schema's."""
    expected = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    nouns = " or ".join(_noun(each, schema, value) for each in expected)
    if isinstance(value, str) and "boolean" in expected and value.lower() in {"true", "false", "yes", "no", "on", "off"}:
        return f"text, because of the quotes: write {nouns} without quotes"
    if isinstance(value, int | float) and "string" in expected:
        return f"{reading(value, document.text(place))}: write it in quotes if it is meant as text"
    return f"{reading(value, document.text(place))}: write {nouns}"


def _noun(kind: str, schema: "Mapping[str, Any]", value: object) -> str:
    """Return what to write, as far as the schema says what it must hold."""
    if kind == "array" and not schema.get("items", {}).keys().isdisjoint({"$ref", "oneOf"}):
        return "a list of blocks, each of which begins with `- `"
    if kind == "object":
        keys = f", with {listed(schema['required'])}" if schema.get("required") else ""
        return NOUNS[kind] + keys + (", below this line and indented further" if value is None else "")
    return NOUNS[kind]


def reading(value: object, written: str) -> str:
    """Return how YAML read the value."""
    match value:
        case bool():
            return f"YAML reads an unquoted {written or 'yes or no'} as true or false"
        case None:
            return "the value is missing"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a block of keys and values"


def of_choice(value: object, choices: list[str], place: Place) -> str:
    """Return the message about a value that is not one of the choices."""
    if not isinstance(value, str):
        return f"write one of {listed(choices)}"
    meant = nearest(value, choices)
    return f"{quoted(value, place)} is not known here" + (f", did you mean {meant}?" if meant else f": allowed are {listed(choices)}")


def of_missing(key: str, choices: list[str] | None, described: dict[str, Any] | None) -> str:
    """Return the message about a missing key."""
    if choices:
        return f"missing: write one of {listed(choices)}"
    allowed = (described or {}).get("description") or ALLOWED.get(key)
    return f"missing: write {allowed}" if allowed else "missing, and without a default: add it"


def of_key(meant: str | None, known: list[str], home: str) -> str:
    """Return the message about an unknown key: the name that was probably meant, or the block that it belongs to."""
    if home:
        return f"unknown key: it belongs {home}, so indent it less"
    return f"unknown key, did you mean `{meant}`?" if meant else f"unknown key: allowed are {listed(known)}"


def of_limit(error: "ValidationError", place: Place) -> str:
    """Return the message about a value beyond the schema's limits, with all of them."""
    schema: dict[str, Any] = dict(error.schema) if isinstance(error.schema, dict) else {}
    if error.validator == "pattern":
        keys = [step for step in place if isinstance(step, str)]
        allowed = schema.get("description") or ALLOWED.get(
            keys[-1] if keys else "", f"text of the form {schema['pattern'].replace(NO_BREAK, '')}"
        )
        return f"{quoted(error.instance, place)} cannot be used: write {allowed}"
    if error.validator in {"minLength", "maxLength"}:
        return "empty: write some text" if error.validator == "minLength" else f"too long: at most {schema['maxLength']} characters"
    words = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "less than"}
    limits = [f"{word} {schema[name]}" for name, word in words.items() if name in schema]
    return f"{error.instance} is out of range: write a number of {' and '.join(limits)}" if limits else "not allowed here"
