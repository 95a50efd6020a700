"""No input of a stranger's gets anything out of a parser but its own refusals, or holds the event loop; `make fuzz` is the long form."""

from collections.abc import Iterator

import pytest

from tests.fuzz.mutation import inputs
from tests.fuzz.parsers import Parser, finding, parsers

TRIES = 100


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Parser]]:
    with parsers(tmp_path_factory.mktemp("fuzz")) as found:
        yield {parser.name: parser for parser in found}


NAMES = (
    "token", "claims", "Retry-After", "foreign words", "aws", "azure", "gcp", "alibaba", "TokenRequest", "watch line", "list",
    "API server refusal", "kubeconfig", "configuration", "annotations", "grant.json", "issuer index", "issuer key", "session token",
    "control request", "Accept of a scrape",
)  # fmt: skip


def test_every_parser_is_tried(made: dict[str, Parser]) -> None:
    assert sorted(made) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_no_input_escapes_or_holds_the_loop(name: str, made: dict[str, Parser]) -> None:
    parser = made[name]
    assert [(found, data[:200]) for data in inputs(parser, TRIES) if (found := finding(parser, data))] == []
