"""Inputs made from seeds, the same each time: what a fuzzer tries first, without its coverage."""

from collections.abc import Iterator
from random import Random

from tests.fuzz.parsers import Parser

LONGEST = 64 * 1024
NASTY = (
    b"[" * 5000, b'{"a":' * 5000, b"9" * 5000, b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b"%00", b"\x1b[2J", b"\r\n", b"'", b'"',
    b"a" * 30000, b"",    b" " * 5000,
    "٣".encode(), "\u202e".encode(), b"<a>" * 5000, b"=" * 1000, b"," * 5000,
)  # fmt: skip


def inputs(parser: Parser, count: int, seed: int = 0) -> Iterator[bytes]:
    """The seeds, then so many made from them."""
    random = Random(f"{parser.name} {seed}")
    yield from parser.seeds
    for _ in range(count):
        data = random.choice(parser.seeds)
        for _ in range(random.randint(1, 6)):
            data = _changed(data, parser, random)[:LONGEST]
        yield data


def _changed(data: bytes, parser: Parser, random: Random) -> bytes:
    at = random.randint(0, len(data))
    to = min(len(data), at + random.randint(0, 12))
    match random.randrange(7):
        case 0:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[to:]
        case 2:
            return data[:at] + data[at:to] * random.choice((2, 100, 3000)) + data[to:]
        case 3:
            return data[:at] + random.choice(NASTY) + data[at:]
        case 4 if parser.words:
            return data[:at] + random.choice(parser.words) + data[at:]
        case 5 if parser.words:
            return data[:at] + random.choice(parser.words) + data[to:]
        case _:
            other = random.choice(parser.seeds)
            return data[:at] + other[random.randint(0, len(other)) :]
