"""What each dialect's SDKs parse: one thing missing after the other, and nothing of what is there is repeated."""

import json
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest

from agent.dialects import DIALECTS
from agent.doctor.endpoint_answers import summarise
from agent.doctor.endpoint_requests import Reply

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
RESOURCE = "https://vault.azure.net"
EC2 = {"AccessKeyId": "ASIA", "SecretAccessKey": "canary", "Token": "canary", "Expiration": "2026-01-01T01:00:00Z"}
RAM = {
    "Code": "Success",
    "AccessKeyId": "STS",
    "AccessKeySecret": "canary",
    "SecurityToken": "canary",
    "Expiration": "2026-01-01T01:00:00Z",
}
ENTRA = {
    "access_token": "canary",
    "expires_in": "3600",
    "expires_on": str(int(LATER.timestamp())),
    "resource": RESOURCE,
    "token_type": "Bearer",
}
GOOD: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "container": EC2,
        "imds": {"Code": "Success", **EC2},
        "gce": {"access_token": "canary", "expires_in": 3600, "token_type": "Bearer"},
        "appservice": ENTRA,
        "azure-imds": ENTRA,
        "uri": RAM,
        "ecs": RAM,
    }
)


def found(dialect: str, answer: Any, **more: str) -> Any:
    marks = {"flavour": "Google", "kind": "application/json", **more}
    return summarise(dialect, Reply("http://x", 200, json.dumps(answer).encode(), **marks), RESOURCE, NOW)


def test_every_dialect_has_an_example() -> None:
    assert set(GOOD) == set(DIALECTS)


@pytest.mark.parametrize("dialect", GOOD)
def test_a_whole_answer_lacks_nothing_and_has_an_expiry(dialect: str) -> None:
    one = found(dialect, GOOD[dialect])
    assert (one.lacking, one.until) == ([], LATER)
    assert "canary" not in one.text


@pytest.mark.parametrize(("dialect", "member"), [(dialect, member) for dialect, answer in GOOD.items() for member in answer])
@pytest.mark.parametrize("instead", [None, "", [], "/"])
def test_each_missing_member_that_sdks_read_is_named(dialect: str, member: str, instead: object) -> None:
    """What is only text to them may be any text."""
    answer = dict(GOOD[dialect])
    if instead is None:
        del answer[member]
    else:
        answer[member] = instead
    free = instead == "/" and member not in {"Code", "Expiration", "expires_in", "expires_on", "resource"}
    lacking = [one.partition(":")[0] for one in found(dialect, answer).lacking]
    assert lacking == ([] if free else [member])


@pytest.mark.parametrize("dialect", GOOD)
@pytest.mark.parametrize("answer", [[], "x", 3, None, {}])
def test_an_answer_of_another_kind_lacks_every_member(dialect: str, answer: object) -> None:
    one = found(dialect, answer)
    assert len(one.lacking) >= len(GOOD[dialect])
    assert one.until is None


def test_googles_headers_are_required() -> None:
    assert found("gce", GOOD["gce"], flavour="").lacking == ["Metadata-Flavor: Google"]
    assert found("gce", GOOD["gce"], kind="text/html").lacking == ["Content-Type: application/json"]


@pytest.mark.parametrize(
    ("dialect", "member", "far"), [("gce", "expires_in", 10**300), ("gce", "expires_in", 10**400), ("appservice", "expires_on", "9" * 5000)]
)
def test_a_time_out_of_range_is_not_an_expiry(dialect: str, member: str, far: object) -> None:
    assert found(dialect, GOOD[dialect] | {member: far}).until is None


def test_a_time_with_a_fraction_is_not_an_expiry() -> None:
    assert found("uri", RAM | {"Expiration": "2026-01-01T01:00:00.5Z"}).lacking == ["Expiration"]
