"""What Entra answers when it does not grant, or grants what cannot be used: each with the right reaction and no secret in it."""

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from agent.errors import Rejected, Unavailable
from tests.servers.azure import Azure, azure, failure
from tests.servers.entra import grant, page, refuse


@pytest.fixture
async def cloud() -> AsyncIterator[Azure]:
    async with azure() as one:
        yield one


REJECTED = [
    (400, 70021, "federated credential"),
    (401, 7002138, "byte for byte"),
    (401, 7002137, "byte for byte"),
    (401, 70025, "federated credential"),
    (401, 700222, "another source"),
    (401, 500133, "clock"),
    (400, 50013, "lead to the key that signed"),
    (401, 700027, "lead to the key that signed"),
    (401, 7000112, "enable the application"),
    (400, 900023, "provider.tenantId"),
    (400, 70011, "provider.scopes"),
    (400, 1002012, "provider.scopes"),
    (400, 50105, "assign"),
    (400, 53003, "Conditional Access"),
    (401, 7000215, "provider.endpoint"),
    (400, 999999, "https://login.microsoftonline.com/error?code=999999"),
]


@pytest.mark.parametrize(("status", "number", "remedy"), REJECTED)
async def test_a_refusal_that_a_person_has_to_mend_is_rejected(cloud: Azure, status: int, number: int, remedy: str) -> None:
    cloud.entra.instead = refuse(status, number, "In Entra's words.")
    error = await failure(cloud)
    assert isinstance(error, Rejected)
    assert error.message.endswith(f"answered {status} AADSTS{number}: In Entra's words.")
    assert remedy in error.remedy


async def test_a_refusal_without_a_code_of_entras_is_told_by_oauths(cloud: Azure) -> None:
    cloud.entra.instead = page(400, '{"error": "invalid_client"}', "application/json")
    error = await failure(cloud)
    assert isinstance(error, Rejected)
    assert error.message.endswith("answered 400 invalid_client")


NOT_ENTRA = ["<html>no", "", "[]", '"x"', "[" * 100_000, '{"error": ["a"], "error_codes": "b", "error_description": 5}']


@pytest.mark.parametrize("text", NOT_ENTRA, ids=lambda text: text[:20])
async def test_a_refusal_by_something_else_says_so(cloud: Azure, text: str) -> None:
    cloud.entra.instead = page(403, text)
    error = await failure(cloud)
    assert isinstance(error, Rejected)
    assert "answered 403 without a code" in error.message
    assert "this was not Entra" in error.remedy


UNAVAILABLE = [
    (429, 90055, "invalid_request"),
    (400, 90055, "invalid_request"),
    (400, 90033, "temporarily_unavailable"),
    (400, 50196, "invalid_grant"),
    (400, 12345, "temporarily_unavailable"),
    (400, 50166, "invalid_request"),
    (400, 90061, "invalid_request"),
    (500, 12345, "server_error"),
    (503, 12345, "x"),
    (504, 700213, "invalid_client"),
    (408, 12345, "x"),
]


@pytest.mark.parametrize(("status", "number", "word"), UNAVAILABLE)
async def test_a_refusal_that_passes_by_itself_is_unavailable_and_asked_once(cloud: Azure, status: int, number: int, word: str) -> None:
    cloud.entra.instead = refuse(status, number, "", word)
    error = await failure(cloud)
    assert isinstance(error, Unavailable)
    assert f"AADSTS{number}" in error.message
    assert error.retry_after is None
    assert cloud.entra.requests == 1, "the SDK does not try again"


@pytest.mark.parametrize("answer", [refuse, lambda status, _, **headers: page(status, "<html>busy", **headers)])
async def test_retry_after_is_passed_on_as_seconds_and_as_a_date(cloud: Azure, answer: Callable[..., Any]) -> None:
    cloud.entra.instead = answer(429, 90055, Retry_After="7")
    error = await failure(cloud)
    assert isinstance(error, Unavailable)
    assert error.retry_after == 7
    cloud.entra.instead = answer(503, 90055, Retry_After=format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True))
    error = await failure(cloud)
    assert isinstance(error, Unavailable)
    assert error.retry_after is not None
    assert 35 < error.retry_after <= 40
    assert cloud.entra.requests == 2


@pytest.mark.parametrize("text", ["<!doctype html><title>Sign in</title>", "", "null", '{"access_token": "x"', "<?xml version='1.0'?><a/>"])
@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_an_answer_that_is_not_of_entra_is_unavailable(cloud: Azure, text: str, kind: str) -> None:
    cloud.entra.instead = page(200, text, kind)
    error = await failure(cloud)
    assert isinstance(error, Unavailable)
    assert "without a usable access token" in error.message


async def test_an_answer_without_end_is_not_read_to_its_end(cloud: Azure) -> None:
    cloud.entra.instead = page(200, "x" * 300_000)
    assert "more than 256 KiB" in (await failure(cloud)).message


@pytest.mark.parametrize(
    "fields",
    [
        {"expires_in": None},
        {"expires_in": 0},
        {"expires_in": -5},
        {"expires_in": "soon"},
        {"expires_in": True},
        {"expires_in": []},
        {"expires_in": float("nan")},
        {"expires_in": 1e300},
        {"expires_in": 4e8},
        {"expires_in": "9" * 400},
        {"expires_in": 999999999999},
        {"expires_on": 1},
        {"expires_on": "x"},
        {"access_token": None},
        {"access_token": ""},
        {"access_token": 7},
        {"access_token": "two words"},
        {"access_token": "one\r\nSet-Cookie: x"},
        {"access_token": "größer"},
        {"access_token": "a" * 70_000},
    ],
    ids=lambda fields: str(fields)[:40],
)
async def test_an_incomplete_or_ended_or_absurd_grant_is_unavailable(cloud: Azure, fields: dict[str, Any]) -> None:
    cloud.entra.instead = grant()
    await cloud.provider().exchange(cloud.token())
    cloud.entra.instead = grant(**fields)
    assert isinstance(await failure(cloud), Unavailable)


@pytest.mark.parametrize(
    "fields", [{"expires_in": "3599"}, {"expires_in": 3599.0}, {"expires_in": None, "expires_on": "4102444800"}], ids=str
)
async def test_numbers_that_entra_writes_as_text_are_read(cloud: Azure, fields: dict[str, Any]) -> None:
    if "expires_on" in fields:
        fields = {**fields, "expires_on": str(int(datetime.now(UTC).timestamp()) + 600)}
    cloud.entra.instead = grant(**fields, refresh_in="garbage", client_info=5, id_token="a.b.c", scope=[])
    credential = await cloud.provider().exchange(cloud.token())
    assert credential.expires_at is not None
    assert credential.expires_at > datetime.now(UTC) + timedelta(minutes=9)


async def test_words_of_entra_that_quote_the_token_are_not_repeated(cloud: Azure) -> None:
    token = cloud.token()
    cloud.entra.instead = refuse(400, 50027, f"JWT {token.value.reveal()[30:60]} is malformed")
    assert (await failure(cloud, token)).message.endswith("answered 400 AADSTS50027")
    cloud.entra.instead = page(400, json.dumps({"error": token.value.reveal().split(".")[1]}), "application/json")
    assert (await failure(cloud, token)).message.endswith("answered 400 without a code")


async def test_an_answer_that_repeats_the_token_is_not_repeated(cloud: Azure) -> None:
    token = cloud.token()
    for status in (200, 400, 500):
        cloud.entra.instead = page(status, token.value.reveal())
        await failure(cloud, token)
        cloud.entra.instead = page(status, json.dumps({"error_description": token.value.reveal(), "error": token.value.reveal()}))
        await failure(cloud, token)
