"""What may be configured of dialects, ports and defaults, and what a running agent takes up of it."""

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from agent.config.model import Config, own_ports
from agent.config.reload import refuse_restart
from agent.dialects import DIALECTS, DialectName
from agent.errors import ConfigError
from agent.identities.profiles import facts
from agent.serving.dialects import every
from agent.settings import Address, convert
from tests.config.writing import told, verdict

ROLE = "arn:aws:iam::123456789012:role/team/reader"
POOL = "projects/123456789012/locations/global/workloadIdentityPools/demo-pool/providers/demo-issuer"
PROVIDERS: dict[str, dict[str, Any]] = {
    "aws": {"type": "aws", "roleArn": ROLE, "region": "eu-west-1"},
    "gcp": {"type": "gcp", "workloadIdentityProvider": POOL},
}


def identity(name: str, provider: str, *dialects: str, **serve: Any) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"type": "file", "path": f"/tokens/{name}"},
        "provider": PROVIDERS[provider],
        "serve": {"dialects": list(dialects), **serve},
    }


def judged(folder: Path, *identities: dict[str, Any], **more: Any) -> tuple[str, list[str]]:
    """Faults, and the messages of warnings."""
    found = verdict(folder, yaml.safe_dump({"identities": list(identities), **more}))
    return told(found.faults), [warning.message for warning in found.warnings]


def test_every_dialect_of_the_configuration_is_known_everywhere() -> None:
    assert set(get_args(DialectName)) == set(DIALECTS)
    spoken = {one.name: one for one in every()}
    assert set(spoken) == set(DIALECTS)
    assert {name: one.timeout for name, one in spoken.items()} == {name: row.timeout for name, row in DIALECTS.items()}


@pytest.mark.parametrize(
    ("dialect", "provider"), [(name, wrong) for name, one in DIALECTS.items() for wrong in PROVIDERS if wrong != one.provider]
)
def test_a_dialect_serves_credentials_of_its_own_cloud_only(tmp_path: Path, dialect: str, provider: str) -> None:
    faults, _ = judged(tmp_path, identity("one", provider, dialect, default=True))
    assert f"needs provider type {DIALECTS[dialect].provider} with exchange: true" in faults


@pytest.mark.parametrize("serve", [{"default": True}, {"port": 9490}])
def test_gce_needs_a_port_or_the_default_identity(tmp_path: Path, serve: dict[str, Any]) -> None:
    assert "set serve.default: true for one identity, or serve.port" in judged(tmp_path, identity("one", "gcp", "gce"))[0]
    assert judged(tmp_path, identity("one", "gcp", "gce", **serve))[0] == ""
    assert judged(tmp_path, identity("one", "aws", "imds"))[0] == "", "which has a path of its own"


def test_a_dialect_has_one_default_identity(tmp_path: Path) -> None:
    faults, _ = judged(
        tmp_path,
        identity("one", "gcp", "gce", default=True),
        identity("two", "aws", "imds", default=True),
        identity("three", "gcp", "gce", default=True),
    )
    assert faults.count("already the default of gce") == 1
    assert "already the default of imds" not in faults


@pytest.mark.parametrize("port", [9481, 9491, 9480])
def test_a_port_of_its_own_must_be_free(tmp_path: Path, port: int) -> None:
    faults, _ = judged(tmp_path, identity("one", "gcp", "gce", port=9491), identity("two", "gcp", "gce", port=port))
    assert f"the agent already listens on 127.0.0.1:{port}" in faults


@pytest.mark.parametrize("port", [0, 65536, -1])
def test_an_invalid_port_is_refused(tmp_path: Path, port: int) -> None:
    assert "serve.port" in judged(tmp_path, identity("one", "gcp", "gce", port=port))[0]


def test_open_dialects_are_warned_of_with_the_guarded_alternative(tmp_path: Path) -> None:
    _, warnings = judged(tmp_path, identity("one", "gcp", "gce", default=True), identity("two", "aws", "imds", "container"))
    assert [warning.partition(":")[0] for warning in warnings] == [
        "not set, so clients of the endpoint may ask for any scope besides `scopes`",
        "gce serves every process that reaches the address",
        "imds serves every process that reaches the address",
    ]
    assert "use container, which requires an authorization" in warnings[2]


@pytest.mark.parametrize("serve", [{"default": True}, {"port": 9490}])
def test_a_root_without_well_known_paths_is_warned_of(tmp_path: Path, serve: dict[str, Any]) -> None:
    faults, warnings = judged(tmp_path, identity("one", "aws", "container", **serve))
    assert (faults, len(warnings), "no effect" in warnings[0]) == ("", 1, True)


def config(*identities: dict[str, Any], listen: tuple[str, ...] = ("127.0.0.1:9481", "[::1]:9481", "127.0.0.1:9483", "unix:/x")) -> Config:
    found: Config = convert({"identities": list(identities), "metadata": {"listen": list(listen)}}, Config)
    return found


def test_a_port_of_its_own_is_opened_on_every_host_once() -> None:
    found = own_ports(config(identity("one", "gcp", "gce", port=9490), identity("two", "gcp", "gce", default=True)))
    assert found == {"one": (Address("127.0.0.1", 9490), Address("::1", 9490))}


def test_a_new_port_needs_a_restart_and_a_removed_port_does_not() -> None:
    served, plain = identity("one", "gcp", "gce", port=9490), identity("two", "gcp", "gce", default=True)
    for running, wanted in (([plain], [plain, served]), ([served], [{**served, "serve": {"dialects": ["gce"], "port": 9491}}])):
        with pytest.raises(ConfigError, match=r"changes of serve\.port need a restart"):
            refuse_restart(config(*running), config(*wanted))
    with pytest.raises(ConfigError, match=r"serve\.port"):
        refuse_restart(config(served), config({**served, "name": "another"}))  # it would be asked for the one that was there
    refuse_restart(config(served, plain), config(plain))
    refuse_restart(config(served, plain), config(plain, served))


def test_dialect_facts_follow_the_provider_unless_set() -> None:
    own = config(identity("one", "gcp", "gce", default=True), identity("two", "aws", "imds")).identities
    assert facts(own[0])["project-id"] == facts(own[0])["project-number"] == "123456789012"
    assert facts(own[0])["email"] == "123456789012.svc.id.goog"
    assert facts(own[1]) == {"role": "reader", "account": "123456789012", "partition": "aws", "region": "eu-west-1"}
    gce = {"projectId": "demo", "projectNumber": "7", "zone": "europe-west1-b", "clusterName": "c", "email": "me"}
    said = facts(config(identity("one", "gcp", "gce", gce=gce)).identities[0])
    assert {name: said.get(name) for name in ("project-id", "project-number", "zone", "cluster-name", "email", "account")} == {
        "project-id": "demo", "project-number": "7", "zone": "europe-west1-b", "cluster-name": "c", "email": "me", "account": None,
    }  # fmt: skip
    said = facts(config(identity("two", "aws", "imds", imds={"v1": True, "availabilityZone": "eu-west-1c"})).identities[0])
    assert (said["v1"], said["availability-zone"]) == ("allowed", "eu-west-1c")
