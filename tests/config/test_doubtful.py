"""What `check` warns of: it is allowed, and lets more clients or ServiceAccounts in than it seems."""

from typing import Any

import pytest
import yaml

from agent.config.model import Identity
from agent.identities.profiles import facts
from agent.settings import convert
from tests.config.writing import told, verdict

POOL = "projects/123456789012/locations/global/workloadIdentityPools/demo-pool/providers/demo-issuer"
TENANT = "72f988bf-86f1-41af-91ab-2d7cd011db47"
KUBERNETES = {"type": "kubernetes", "serviceAccount": {"namespace": "demo", "name": "app"}}
AWS = {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/r", "region": "eu-west-1"}
GCP = {"type": "gcp", "workloadIdentityProvider": POOL}
UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


def identity(name: str = "one", **more: Any) -> dict[str, Any]:
    return {"name": name, "source": KUBERNETES, "sinks": [{"type": "files", "directory": f"run/{name}"}], **more}


def warned(folder: Any, *identities: dict[str, Any], environ: dict[str, str] | None = None) -> list[str]:
    text = yaml.safe_dump({"identities": list(identities)})
    found = verdict(folder, text, environ)
    assert not found.faults, told(found.faults)
    return [f"{warning.path}: {warning.message}" for warning in found.warnings]


@pytest.mark.parametrize(
    ("provider", "mode", "said"),
    [
        ({"type": "generic", "audiences": []}, "0644", "valid for the API server, with all rights of the ServiceAccount"),
        ({"type": "generic", "audiences": ["a", "b"]}, "0644", "valid for each of its 2 audiences"),
        ({"type": "generic", "audiences": ["a", "b"]}, "0604", "valid for each of its 2 audiences"),
        ({"type": "generic", "audiences": ["a", "b"]}, "0640", ""),
        ({"type": "generic", "audiences": ["a"]}, "0644", ""),
        (AWS, "0644", ""),
        ({**GCP, "exchange": False}, "0644", ""),
    ],
)
def test_a_world_readable_token_of_no_or_several_audiences_is_warned_of(tmp_path, provider, mode, said):
    sinks = [{"type": "files", "directory": "run/one", "mode": mode}]
    found = [line for line in warned(tmp_path, identity(provider=provider, sinks=sinks)) if "identities[0].sinks[0].mode" in line]
    assert [said in line for line in found] == ([True] if said else [])
    assert all("line " in line for line in found)


def test_a_token_for_the_api_server_is_warned_of_whatever_its_mode(tmp_path):
    [line] = warned(tmp_path, identity(provider={"type": "generic", "audiences": []}))
    assert line.startswith("identities[0].provider.audiences: empty, so the API server accepts the token")


@pytest.mark.parametrize(
    ("provider", "key"),
    [
        ({**AWS, "fromServiceAccount": True}, "roleArn"),
        ({"type": "aws", "region": "eu-west-1", "fromServiceAccount": True}, ""),
        (AWS, ""),
        ({"type": "azure", "tenantId": TENANT, "clientId": UID, "fromServiceAccount": True}, "clientId"),
        ({"type": "azure", "tenantId": TENANT, "fromServiceAccount": True}, ""),
        ({**GCP, "serviceAccount": "a@demo-project.iam.gserviceaccount.com", "fromServiceAccount": True}, "serviceAccount"),
        ({**GCP, "fromServiceAccount": True}, ""),
    ],
)
def test_a_principal_beside_from_service_account_is_warned_of(tmp_path, provider, key):
    found = warned(tmp_path, identity(provider=provider))
    assert [line.partition(":")[0] for line in found] == ([f"identities[0].provider.{key}"] if key else [])
    assert all("a tenant becomes this principal by removing its annotation" in line for line in found)


def test_scopes_without_a_bound_at_run_time_are_warned_of(tmp_path):
    served = {"dialects": ["gce"], "default": True}
    said = "identities[0].provider.scopesAllowed: not set, so clients of the endpoint may ask for any scope"
    assert any(line.startswith(said) for line in warned(tmp_path, identity(provider=GCP, serve=served)))
    for bounded in ({**GCP, "scopesAllowed": []}, {**GCP, "scopesAllowed": ["openid"]}):
        assert not any("scopesAllowed" in line for line in warned(tmp_path, identity(provider=bounded, serve=served)))
    assert not any("scopesAllowed" in line for line in warned(tmp_path, identity(provider=GCP)))


@pytest.mark.parametrize(("allowed", "fact"), [(None, None), ([], "s"), (["openid"], "openid s")])
def test_the_endpoint_knows_which_scopes_may_be_asked_for(allowed, fact):
    provider = {**GCP, "scopes": ["s"], "scopesAllowed": allowed}
    assert facts(convert(identity(provider=provider), Identity)).get("scopes-allowed") == fact


def served(name: str, variable: str) -> dict[str, Any]:
    return identity(name, provider=AWS, serve={"dialects": ["container"], "authorization": f"${{{variable}}}"})


def test_an_authorization_that_two_identities_share_is_warned_of(tmp_path):
    environ = {"A": "0123456789abcdef", "B": "0123456789abcdef", "C": "fedcba9876543210"}
    [line] = warned(tmp_path, served("one", "A"), served("two", "B"), served("three", "C"), environ=environ)
    assert line.startswith(
        "identities[1].serve.authorization: one has the same text, so a client of one is served the other: give each identity"
        " its own (identities[0]"
    )
    assert "0123456789abcdef" not in line


def test_a_pods_uid_as_authorization_is_warned_of(tmp_path):
    [line] = warned(tmp_path, served("one", "A"), environ={"A": UID})
    assert "every container of the pod can read in /proc/self/mountinfo" in line
    assert UID not in line
