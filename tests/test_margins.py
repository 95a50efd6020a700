"""The table of who wants how much left."""

from typing import get_args

import pytest

from agent.dialects import DIALECTS, DialectName, credential_margin, shortest, token_margin


@pytest.mark.parametrize(
    ("dialects", "minutes"),
    [
        ((), 0),
        (("container",), 20),
        (("imds",), 25),
        (("gce",), 5),
        (("appservice",), 10),
        (("azure-imds",), 10),
        (("uri",), 20),
        (("ecs",), 65),
        (("container", "imds"), 25),
        (("uri", "ecs"), 65),
        (("something-else",), 0),
    ],
)
def test_a_credential_keeps_as_much_life_as_its_most_demanding_consumer_wants(dialects, minutes):
    assert credential_margin(dialects) == minutes * 60


def test_every_dialect_that_can_be_configured_has_its_margin():
    assert set(get_args(DialectName)) <= set(DIALECTS)


@pytest.mark.parametrize(
    ("provider", "written", "minutes"), [("azure", True, 10), ("azure", False, 0), ("aws", True, 0), ("generic", True, 0)]
)
def test_a_token_file_keeps_the_ten_minutes_that_azures_sdks_use_what_they_read(provider, written, minutes):
    assert token_margin(provider, written=written) == minutes * 60


def test_a_margin_of_twenty_minutes_needs_a_lifetime_of_twenty_six_minutes_forty():
    assert shortest(20 * 60) == 1600
    assert shortest(0) == 0
