"""A Secret shows itself to nobody who does not say so."""

import copy
import json
import logging
import pickle
import traceback

import msgspec
import pytest

from agent.model import Key, Secret
from tests.fakes import START, FakeCredential, a_token

CANARY = "canary-91e0"


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r:>20}".format, "%s".__mod__, lambda it: f"{[it]}{ {'a': it} }", ascii])
def test_no_way_of_showing_a_secret_shows_it(show):
    assert CANARY not in show(Secret(CANARY))


@pytest.mark.parametrize("keep", [pickle.dumps, copy.copy, copy.deepcopy, json.dumps, msgspec.json.encode, hash, vars])
def test_a_secret_is_not_serialised_copied_or_used_as_a_key(keep):
    with pytest.raises(TypeError) as caught:
        keep(Secret(CANARY))
    assert CANARY not in str(caught.value)


def test_a_secret_can_be_revealed_and_compared():
    assert Secret(CANARY).reveal() == CANARY
    assert Secret(CANARY) == Secret(CANARY)
    assert Secret(CANARY) != Secret(CANARY + "é")
    assert Secret(CANARY) != CANARY


def test_a_secret_in_a_token_in_a_log_line_or_a_traceback_stays_hidden(caplog):
    token = a_token()
    logging.getLogger("test").error("%s %r", token, {"token": token})
    try:
        raise ValueError(token)
    except ValueError:
        shown = traceback.format_exc()
    assert "canary" not in caplog.text + shown


def test_keys_are_equal_by_identity_and_variant_and_by_nothing_less():
    assert Key("a") == Key("a", "")
    assert len({Key("a"), Key("a", "x"), Key("a.x"), Key("ax")}) == 4
    assert FakeCredential(START).issued_at == START
