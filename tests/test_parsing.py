"""JSON of a stranger's, within bounds."""

import math

import pytest

from agent.parsing import DEEPEST_LEVELS, LONGEST_BYTES, json_object


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"a": [1, "b"]}', {"a": [1, "b"]}),
        (b'\xef\xbb\xbf{"a": null}', {"a": None}),
        ('{"é": -7}', {"é": -7}),
        (b'{"a": ' + b"9" * 21 + b', "b": -' + b"9" * 5000 + b"}", {"a": math.inf, "b": -math.inf}),
        (b'{"a": 18446744073709551615}', {"a": 2**64 - 1}),
        (b'{"a": "' + b"9" * 5000 + b'"}', {"a": "9" * 5000}),
    ],
)
def test_an_object_is_read_with_whatever_numbers_it_holds(body: bytes | str, found: object) -> None:
    assert json_object(body) == found


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"7", b"{", b"\xff\xfe{\0}\0", b'{"a": "\xff"}', b"[" * 200_000, b'{"a":' * 30_000, b" " * LONGEST_BYTES + b"{}"],
    ids=lambda body: repr(body[:12]),
)
def test_anything_else_is_not_an_object(body: bytes) -> None:
    assert json_object(body) is None


def test_depth_is_bounded_and_brackets_in_text_are_not_depth() -> None:
    def nested(levels: int) -> str:
        return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"

    assert json_object(nested(DEEPEST_LEVELS)) is not None
    assert json_object(nested(DEEPEST_LEVELS + 1)) is None
    assert json_object('{"a": "' + "[" * 5000 + '", "b": [' + "[], " * 500 + "[]]}") is not None


def test_a_caller_may_name_its_own_length() -> None:
    assert json_object(b'{"a": 1}', longest=8) == {"a": 1}
    assert json_object(b'{"a": 1}', longest=7) is None
