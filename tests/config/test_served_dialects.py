"""What `check` says of Azure's and Alibaba Cloud's dialects."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import loading

AZURE = {"type": "azure", "tenantId": "contoso.onmicrosoft.com", "clientId": "7d1a0c5e-8f0c-4f7a-9a55-0d8c3f1b2a90"}
ALIBABA = {
    "type": "alibaba",
    "roleArn": "acs:ram::1234567890123456:role/oss-reader",
    "oidcProviderArn": "acs:ram::1234567890123456:oidc-provider/cluster",
}


def verdict(
    folder: Path, provider: dict[str, Any], serve: dict[str, Any], listen: str = "127.0.0.1:9481", value: str = ""
) -> loading.Verdict:
    identity = {"name": "one", "source": {"type": "file", "path": "/token"}, "provider": provider, "serve": serve}
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"metadata": {"listen": [listen]}, "identities": [identity]}))
    return loading.check(file, {"SHOWN": value} if value else {})


@pytest.mark.parametrize(
    ("value", "fine"),
    [("0123456789abcdef-._~", True), ("0123456789abcdef/", False), ("0123456789abcde%41", False), ("0123456789abcdef?", False)],
)
def test_an_authorization_in_a_path_needs_unreserved_characters(tmp_path: Path, value: str, fine: bool) -> None:
    found = verdict(tmp_path, ALIBABA, {"dialects": ["uri"], "authorization": "${SHOWN}"}, value=value)
    assert [fault.path for fault in found.faults] == ([] if fine else ["identities[0].serve.authorization"])
    assert not any(value in str(fault) for fault in found.faults)
    found = verdict(tmp_path, AZURE, {"dialects": ["appservice"], "authorization": "${SHOWN}"}, value=value)
    assert found.faults == [], "a header may hold it"


@pytest.mark.parametrize(
    ("listen", "serve", "reached"),
    [
        ("100.100.100.200:80", {"default": True}, True),
        (":80", {"default": True}, True),
        ("100.100.100.200:9481", {"port": 80}, True),
        ("127.0.0.1:9481", {"default": True}, False),
        ("100.100.100.200:9481", {"default": True}, False),
        ("127.0.0.1:9481", {"port": 80}, False),
    ],
)
def test_ecs_without_alibabas_address_is_warned_of(tmp_path: Path, listen: str, serve: dict[str, Any], reached: bool) -> None:
    found = verdict(tmp_path, ALIBABA, {"dialects": ["ecs"], **serve}, listen)
    said = [warning for warning in found.warnings if "SDKs ask 100.100.100.200:80" in warning.message]
    assert bool(said) is not reached
    assert {warning.path for warning in said} <= {"identities[0].serve.dialects[0]"}


@pytest.mark.parametrize(("provider", "dialect", "guarded"), [(AZURE, "azure-imds", "appservice"), (ALIBABA, "ecs", "uri")])
def test_an_open_dialect_is_doubtful_and_the_guarded_one_is_named(
    tmp_path: Path, provider: dict[str, Any], dialect: str, guarded: str
) -> None:
    found = verdict(tmp_path, provider, {"dialects": [dialect], "default": True})
    assert found.faults == []
    assert any(f"use {guarded}, which requires an authorization" in warning.message for warning in found.warnings)
    assert [fault.path for fault in verdict(tmp_path, provider, {"dialects": [dialect]}).faults] == ["identities[0].serve.dialects[0]"]
    assert not any(
        "trust all of them alike" in warning.message for warning in verdict(tmp_path, provider, {"dialects": [guarded]}).warnings
    )


@pytest.mark.parametrize(("provider", "dialects"), [(AZURE, ("uri", "ecs", "container")), (ALIBABA, ("appservice", "azure-imds", "gce"))])
def test_a_dialect_serves_only_its_own_cloud(tmp_path: Path, provider: dict[str, Any], dialects: tuple[str, ...]) -> None:
    for dialect in dialects:
        found = verdict(tmp_path, provider, {"dialects": [dialect], "default": True})
        assert any("it needs provider type" in fault.message for fault in found.faults)


@pytest.mark.parametrize(
    ("provider", "gce", "known"),
    [
        ({}, {}, False),
        ({}, {"projectId": "demo-project"}, True),
        ({"project": "demo-project"}, {}, True),
        ({"serviceAccount": "reader@demo-project.iam.gserviceaccount.com"}, {}, True),
    ],
)
def test_gce_in_gke_without_a_project_is_warned_of(tmp_path: Path, provider: dict[str, Any], gce: dict[str, Any], known: bool) -> None:
    found = verdict(tmp_path, {"type": "gcp", "gke": True, **provider}, {"dialects": ["gce"], "default": True, "gce": gce})
    assert found.faults == []
    said = [warning.path for warning in found.warnings if "no other setting implies it" in warning.message]
    assert said == ([] if known else ["identities[0].serve.gce.projectId"])
