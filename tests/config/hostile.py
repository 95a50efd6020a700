"""Configurations that are made to stop, stall or flood whatever reads them."""

from collections.abc import Mapping

IDENTITY = "- {name: %s, source: {type: file, path: x}, provider: {type: generic, audiences: [a]}}"
DIGITS = 10_000


def _identities(*lines: str) -> str:
    return "\n".join(["identities:", *lines]) + "\n"


def _one(block: str, setting: str) -> str:
    """A good identity with another block."""
    parts = {"source": "{type: file, path: x}", "provider": "{type: generic, audiences: [a]}"} | {block: setting}
    return _identities("- {name: one, " + ", ".join(f"{key}: {value}" for key, value in parts.items()) + "}")


def _number(text: str) -> str:
    return f"refresh: {{concurrency: {text}}}\nidentities: []\n"


def _bomb(opening: str, closing: str, first: str) -> str:
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} {opening}{', '.join([f'*a{n - 1}'] * 10)}{closing}" for n in range(1, 12)]
    return "\n".join(lines) + "\nidentities: []\n"


NUMBERS = {
    "decimal": _number("9" * DIGITS),
    "negative": _number("-" + "9" * DIGITS),
    "hexadecimal": _number("0x" + "f" * DIGITS),
    "binary": _number("0b" + "1" * DIGITS),
    "octal": _number("0" + "7" * DIGITS),
    "sexagesimal": _number(":".join(["59"] * DIGITS)),
    "sexagesimal of a megabyte": _number(":".join(["59"] * 340_000)),
    "sexagesimal fraction": _number(":".join(["59"] * DIGITS) + ".5"),
    "underscores": _number("9" + "_9" * DIGITS),
    "float": _number("9" * DIGITS + ".0"),
    "exponent": _number("1.0e+" + "9" * DIGITS),
    "infinity": "refresh: {at: .inf}\nidentities: []\n",
    "not a number": "refresh: {at: .nan}\nidentities: []\n",
    "tagged": _number("!!int '" + "9" * DIGITS + "'"),
    "tagged float": _number("!!float '" + "9" * DIGITS + "'"),
    "2^64": _number(str(2**64)),
    "as a key": f"? {'9' * DIGITS}\n: 1\nidentities: []\n",
    "hexadecimal key": "0x" + "f" * DIGITS + ": 1\nidentities: []\n",
    "sexagesimal key": ":".join(["59"] * 100) + ": 1\nidentities: []\n",
    "as a name": _identities(IDENTITY % ("9" * DIGITS)),
    "as a port": _one("serve", "{port: " + "9" * DIGITS + "}"),
    "as an owner": _one("sinks", "[{type: files, directory: d, owner: " + "9" * DIGITS + "}]"),
    "as a claim": _one("source", "{type: issuer, subject: s, claims: {a: 0x" + "f" * DIGITS + "}}"),
    "as a duration": _one("source", "{type: issuer, subject: s, lifetime: " + "9" * DIGITS + "s}"),
    "in a chain of lists": "identities: [" + ", ".join(["0x" + "f" * 100] * 5000) + "]\n",
}
DEPTH = {
    "flow lists": "identities: " + "[" * 100_000,
    "flow mappings": "{a: " * 50_000,
    "closed lists": "identities: " + "[" * 5000 + "]" * 5000 + "\n",
    "block lists": "identities:\n" + "- " * 5000 + "x\n",
    "block mappings": "".join(" " * n + "a:\n" for n in range(1000)),
    "complex keys": "? " * 5000 + "a\n",
    "just too deep": "identities: " + "[" * 64 + "]" * 64 + "\n",
    "a path of a megabyte": _one("source", "{type: file, path: " + "a/" * 450_000 + "}"),
    "a socket of a megabyte": "metadata: {listen: ['unix:/" + "a/" * 450_000 + "']}\nidentities: []\n",
    "a socket within many directories": "control: {socket: " + "a/" * 2000 + "x}\nidentities: []\n",
    "claims": _one("source", "{type: issuer, subject: s, claims: " + "{a: " * 2000 + "1" + "}" * 2000 + "}"),
    "a directory": _one("sinks", "[" + ", ".join(f"{{type: files, directory: {'a/' * 2000}{n}/..x}}" for n in range(100)) + "]"),
}
BOMBS = {
    "lists": _bomb("[", "]", "[x, x, x, x, x, x, x, x, x, x]"),
    "mappings": _bomb("{a: [", "]}", "{k: v}"),
    "merge keys": _bomb("{<<: [", "]}", "{k: v}"),
    "itself": "identities: &a [*a]\n",
    "itself in a mapping": "identities: &a {b: *a}\n",
    "as identities": "a: &a [x, x, x, x, x, x, x, x, x, x]\nidentities: [" + ", ".join(["*a"] * 9000) + "]\n",
    "one anchor, many aliases": "identities: [&a {name: one}" + ", *a" * 30_000 + "]\n",
    "long text": "a: &a " + "x" * 500_000 + "\nidentities: [" + ", ".join(["*a"] * 20_000) + "]\n",
    "empty items": "identities:\n" + "- {}\n" * 200_000,
}
FLOODS = {
    "unknown keys": "".join(f"unknown{n}: 1\n" for n in range(20_000)) + "identities: []\n",
    "unknown keys of 1000 letters": "".join(f"{'identitie' * 110}{n}: 1\n" for n in range(900)) + "identities: []\n",
    "unknown key of a megabyte": "identities: []\n? " + "identities" * 90_000 + "\n: 1\n",
    "identities without anything": "identities:\n" + "- {}\n" * 10_000,
    "identities of text": "identities: [" + ", ".join(["x"] * 20_000) + "]\n",
    "identities of another type": "identities: {" + ", ".join(f"a{n}: b" for n in range(20_000)) + "}\n",
    "misspelt": "identities:\n" + "- {nmae: a, sorce: {tpye: b}, provder: {}}\n" * 5000,
    "the same name": _identities(*[IDENTITY % "same"] * 4000),
    "keys given twice": "identities: []\n" + "refresh: {}\n" * 20_000,
    "keys that are no text": "identities: []\n" + "".join(f"{n}: 1\n" for n in range(20_000)),
    "tags": "identities: [" + ", ".join(["!x y"] * 20_000) + "]\n",
    "python tags": "identities: [" + ", ".join(["!!python/object/apply:os.getcwd []"] * 10_000) + "]\n",
    "timestamps": "identities: [" + ", ".join(["!!timestamp x"] * 10_000) + "]\n",
    "sets and ordered maps": "identities: [" + ", ".join(["!!set {a}, !!omap [a: 1], !!pairs [a: 1], !!binary x"] * 5000) + "]\n",
    "listeners": "metadata: {listen: [" + ", ".join(["'127.0.0.1:9481'"] * 20_000) + "]}\nidentities: []\n",
    "open listeners": "metadata: {listen: [" + ", ".join(f"'10.0.{n >> 8}.{n & 255}:1'" for n in range(20_000)) + "]}\nidentities: []\n",
    "socket files": "metadata: {listen: [" + ", ".join([f"'unix:/{'s' * 120}'"] * 5000) + "]}\nidentities: []\n",
    "audiences": _one("provider", "{type: generic, audiences: [" + ", ".join(["'é'"] * 20_000) + "]}"),
    "sinks in one place": _one("sinks", "[" + ", ".join(["{type: files, directory: d}"] * 8000) + "]"),
    "sinks without a type": _one("sinks", "[" + ", ".join(["{directory: d}"] * 8000) + "]"),
    "unknown owners": _one("sinks", "[" + ", ".join(f"{{type: files, directory: d{n}, owner: nobody{n}}}" for n in range(4000)) + "]"),
    "names of files": _one("sinks", "[{type: files, directory: d, names: {" + ", ".join(f"tokn{n}: x" for n in range(10_000)) + "}}]"),
    "wrong at the end": _identities(*[IDENTITY % f"i{n}" for n in range(4000)], "- {}"),
    "control characters": "identities: [" + ", ".join(['"a\\nb"'] * 20_000) + "]\n",
    "chains": _one(
        "provider", "{type: aws, roleArn: x, region: y, chain: [" + ", ".join(["{roleArn: x, externalId: [secret]}"] * 5000) + "]}"
    ),
}
EMPTINESS = {
    "nothing": "",
    "a comment": "# nothing yet\n",
    "blank lines": "\n" * 100_000,
    "a document's start": "---\n",
    "null": "~\n",
    "an empty mapping": "{}\n",
    "an empty list": "[]\n",
    "another block alone": "refresh: {at: 0.5}\n",
    "a null list": "identities:\n",
    "an empty mapping for a list": "identities: {}\n",
    "two documents": "identities: []\n---\nidentities: []\n",
    "spaces": " " * 900_000,
    "beyond a megabyte": "#" * (1 << 21),
    "NUL": "\0" * 1000,
}
HOSTILE: Mapping[str, str] = {
    f"{kind}: {name}": text
    for kind, table in {"numbers": NUMBERS, "depth": DEPTH, "bombs": BOMBS, "floods": FLOODS, "emptiness": EMPTINESS}.items()
    for name, text in table.items()
}
