"""Whose identities may be had: every class of reference under every kind of lockdown."""

from pathlib import Path

import pytest
import yaml

from agent.config.loading import check
from agent.config.tenancy import forbidden
from tests.config.writing import told, verdict

SUBJECT = "system:serviceaccount:"
KUBERNETES = {"type": "kubernetes", "serviceAccount": {"namespace": "tenant1", "name": "app"}}
NAMELESS = {"type": "kubernetes", "serviceAccount": {"namespace": "tenant1"}}
ISSUER = {"url": "https://issuer.example", "listen": [], "state": "run/issuer"}


def of(source, tenancy, **provider):
    identity = {"name": "x", "source": source, "provider": {"type": "generic", "audiences": ["a"], **provider}}
    identity["sinks"] = [{"type": "files", "directory": "run/x"}]
    return yaml.safe_dump({"issuer": ISSUER, "identities": [identity], "tenancy": tenancy})


def account(namespace="tenant1", name="app", **rest):
    return {"type": "kubernetes", "serviceAccount": {"namespace": namespace, "name": name}, **rest}


@pytest.mark.parametrize(
    ("tenancy", "fault"),
    [
        ({}, ""),
        ({"objectLevel": True, "namespaces": ["tenant1"], "defaultServiceAccount": "d", "requireServiceAccount": True}, ""),
        ({"objectLevel": False}, "identities[0].source.type: tenancy.objectLevel is false"),
        ({"objectLevel": False, "namespaces": ["tenant1"]}, "tenancy.namespaces: has no effect with objectLevel: false"),
        ({"objectLevel": False, "defaultServiceAccount": "d"}, "tenancy.defaultServiceAccount: has no effect"),
        ({"objectLevel": False, "requireServiceAccount": True}, "tenancy.requireServiceAccount: has no effect"),
        ({"namespaces": []}, "tenancy.namespaces: the list is empty"),
        ({"namespaces": ["tenant1\n"]}, "tenancy.namespaces[0]"),
        ({"namespaces": ["../x"]}, "tenancy.namespaces[0]"),
        ({"namespaces": ["tenant*"]}, "tenancy.namespaces[0]"),
        ({"defaultServiceAccount": ""}, "tenancy.defaultServiceAccount"),
        ({"defaultServiceAccount": "demo/app"}, "tenancy.defaultServiceAccount"),
    ],
)
def test_combinations_that_contradict_themselves_are_refused_at_start(tmp_path: Path, tenancy: dict, fault: str) -> None:
    found = verdict(tmp_path, of(KUBERNETES, tenancy))
    assert fault in told(found.faults)
    assert bool(found.faults) == bool(fault), told(found.faults)
    assert (found.config is None) == bool(fault)


@pytest.mark.parametrize(
    ("source", "tenancy"),
    [
        (account("tenant2"), {"namespaces": ["tenant1"]}),
        (account("tenant1"), {"objectLevel": False}),
        ({"type": "issuer", "subject": SUBJECT + "tenant2:app"}, {"namespaces": ["tenant1"]}),
        ({"type": "file", "path": "/x"}, {"requireServiceAccount": True}),
    ],
)
def test_forbidden_identity_is_refused_at_start_and_no_fault_of_a_reload(tmp_path: Path, source: dict, tenancy: dict) -> None:
    text = of(source, tenancy)
    assert verdict(tmp_path, text).config is None
    (tmp_path / "config.yaml").write_text(text)
    reloaded = check(tmp_path / "config.yaml", {}, reload=True)
    assert (reloaded.faults, len(reloaded.warnings)) == ([], 1)
    assert reloaded.config
    assert forbidden(reloaded.config.identities[0], reloaded.config.tenancy)


@pytest.mark.parametrize("tenancy", [{"namespaces": []}, {"objectLevel": False, "namespaces": ["tenant1"]}])
def test_tenancy_that_contradicts_itself_is_refused_at_a_reload_too(tmp_path: Path, tenancy: dict) -> None:
    (tmp_path / "config.yaml").write_text(of(account(), tenancy))
    assert check(tmp_path / "config.yaml", {}, reload=True).config is None


def test_nameless_identity_without_a_default_is_refused_at_a_reload_too(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(of(NAMELESS, {"namespaces": ["tenant1"]}))
    assert check(tmp_path / "config.yaml", {}, reload=True).config is None


@pytest.mark.parametrize(
    ("source", "tenancy", "fault"),
    [
        # namespaces, by equality
        (account("tenant1"), {"namespaces": ["tenant1"]}, ""),
        (account("tenant10"), {"namespaces": ["tenant1"]}, "serviceAccount.namespace: tenant10 is not in"),
        (account("tenant1"), {"namespaces": ["tenant10"]}, "serviceAccount.namespace: tenant1 is not in"),
        (account("enant1"), {"namespaces": ["tenant1"]}, "is not in"),
        ({"type": "issuer", "subject": SUBJECT + "tenant1:app"}, {"namespaces": ["tenant1"]}, ""),
        ({"type": "issuer", "subject": SUBJECT + "tenant10:app"}, {"namespaces": ["tenant1"]}, "source.subject: tenant10 is not in"),
        ({"type": "issuer", "subject": SUBJECT + "tenant1"}, {"namespaces": ["tenant1"]}, "subject is not a ServiceAccount"),
        ({"type": "issuer", "subject": SUBJECT + ":app"}, {"namespaces": ["tenant1"]}, "subject is not a ServiceAccount"),
        ({"type": "issuer", "subject": SUBJECT + "tenant1:app:x"}, {"namespaces": ["tenant1"]}, "subject is not a ServiceAccount"),
        ({"type": "issuer", "subject": "somebody"}, {"namespaces": ["tenant1"]}, "the subject is not a ServiceAccount"),
        # every identity is a ServiceAccount's
        (account(), {"requireServiceAccount": True}, ""),
        ({"type": "file", "path": "/x"}, {"requireServiceAccount": True}, "source.type: tenancy.requireServiceAccount is true"),
        ({"type": "issuer", "subject": SUBJECT + "a:b"}, {"requireServiceAccount": True}, "source.type: tenancy.requireServiceAccount"),
        # none is
        ({"type": "file", "path": "/x"}, {"objectLevel": False}, ""),
        ({"type": "issuer", "subject": "somebody"}, {"objectLevel": False}, ""),
        # names
        (NAMELESS, {}, "serviceAccount.name: missing"),
        (NAMELESS, {"requireServiceAccount": True}, "serviceAccount.name: missing"),
        ({"type": "kubernetes", "serviceAccount": {"name": "app"}}, {}, "serviceAccount.namespace: missing"),
        ({"type": "kubernetes", "serviceAccount": {"name": "app"}}, {"defaultServiceAccount": "d"}, "serviceAccount.namespace: missing"),
        ({"type": "kubernetes"}, {"defaultServiceAccount": "d", "namespaces": ["tenant1"]}, "source.serviceAccount: missing"),
        (account("tenant10", ""), {"defaultServiceAccount": "d", "namespaces": ["tenant1"]}, "serviceAccount"),
        # hostile names
        *(
            (account(**{key: value}), {"namespaces": ["tenant1"]}, f"serviceAccount.{key}")
            for key in ("namespace", "name")
            for value in ("tenant1\n", "../tenant1",
 "tenant1/../x", "ｔenant1", "tenant1\x00", "t" * 65536, "TENANT1", "tenant1/serviceaccounts/x")
        ),
    ],
)  # fmt: skip
def test_every_class_of_reference_is_held_to_it(tmp_path: Path, source: dict, tenancy: dict, fault: str) -> None:
    found = verdict(tmp_path, of(source, tenancy))
    said = told(found.faults)
    assert fault in said
    assert bool(found.faults) == bool(fault), said
    assert len(said) < 2000
    assert list(tmp_path.iterdir()) == [tmp_path / "config.yaml"], "no directory is made of it"


def test_the_default_replaces_a_missing_name_only(tmp_path: Path) -> None:
    tenancy = {"defaultServiceAccount": "default-app"}
    for source, name in (({"type": "kubernetes", "serviceAccount": {"namespace": "tenant1"}}, "default-app"), (account(name="own"), "own")):
        config = verdict(tmp_path, of(source, tenancy)).config
        assert config
        assert config.identities[0].source.service_account.name == name
        assert config.identities[0].source.service_account.namespace == "tenant1"
        assert config.identities[0].source.service_account.by_default == (name == "default-app"), "for what is said where it is missing"


@pytest.mark.parametrize("source", [{"type": "file", "path": "/x"}, {"type": "issuer", "subject": "somebody"}])
def test_only_a_serviceaccount_has_annotations(tmp_path: Path, source: dict) -> None:
    text = of(source, {}).replace("type: generic", "type: aws\n    region: eu-west-1\n    fromServiceAccount: true")
    assert "provider.fromServiceAccount: needs source kubernetes" in told(verdict(tmp_path, text).faults)


@pytest.mark.parametrize(
    ("provider", "faults"),
    [
        ("type: aws\n    region: eu-west-1", ["provider.roleArn: missing"]),
        ("type: azure", ["provider.clientId: missing", "provider.tenantId: missing"]),
        ("type: gcp", ["provider.workloadIdentityProvider: belongs here"]),
        ("type: alibaba\n    oidcProviderArn: acs:ram::12345:oidc-provider/x", ["provider.roleArn: missing"]),
    ],
)
def test_principal_must_come_from_configuration_or_serviceaccount(tmp_path: Path, provider: str, faults: list[str]) -> None:
    text = of(KUBERNETES, {}).replace("type: generic", provider)
    said = told(verdict(tmp_path, text).faults)
    assert all(fault in said for fault in faults), said
    assert not verdict(tmp_path, text.replace(provider, f"{provider}\n    fromServiceAccount: true")).faults
