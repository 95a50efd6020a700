"""What around an SDK would keep it from the endpoint: addresses that are not there, and variables that lead elsewhere."""

from typing import Any

import pytest

from agent.clock import WallClock
from agent.config.model import Config, Identity
from agent.doctor import endpoint_addresses, endpoint_environment
from agent.doctor.case import Case, View
from agent.identities.addresses import base_url
from agent.settings import convert
from tests.servers.alibaba_cloud import PROVIDER
from tests.servers.alibaba_cloud import ROLE as ACS_ROLE
from tests.servers.cloud import ROLE
from tests.servers.entra import CLIENT, TENANT
from tests.servers.gcp import PATH

PROVIDERS: dict[str, dict[str, Any]] = {
    "container": {"type": "aws", "roleArn": ROLE, "region": "eu-west-1"},
    "imds": {"type": "aws", "roleArn": ROLE, "region": "eu-west-1"},
    "gce": {"type": "gcp", "workloadIdentityProvider": PATH},
    "appservice": {"type": "azure", "tenantId": TENANT, "clientId": CLIENT},
    "azure-imds": {"type": "azure", "tenantId": TENANT, "clientId": CLIENT},
    "uri": {"type": "alibaba", "roleArn": ACS_ROLE, "oidcProviderArn": PROVIDER},
    "ecs": {"type": "alibaba", "roleArn": ACS_ROLE, "oidcProviderArn": PROVIDER},
}
ELSEWHERE = "http://127.0.0.1:9/canary"


def case(dialect: str, *listen: str, serve: dict[str, Any] | None = None, **environ: str) -> Case:
    identity = {
        "name": "one",
        "source": {"type": "file", "path": "./token"},
        "provider": PROVIDERS[dialect],
        "serve": {"dialects": [dialect], "default": True, **(serve or {})},
    }
    config: Config = convert({"identities": [identity], "metadata": {"listen": list(listen) or ["127.0.0.1:9481"]}}, Config)
    toolbox: Any = type("Toolbox", (), {"clock": WallClock()})()
    view = View(socket="agent.sock", status=None)
    only: Identity = config.identities[0]
    return Case(identity=only, config=config, toolbox=toolbox, environ=environ, view=view, base=base_url(config))


def said(dialect: str, **environ: str) -> list[str]:
    found = [f"{one.text} → {one.remedy}" for one in endpoint_environment.look(case(dialect, **environ))]
    assert not any("canary" in one for one in found)
    return found


@pytest.mark.parametrize("dialect", PROVIDERS)
def test_an_environment_without_such_variables_has_no_warning(dialect: str) -> None:
    assert said(dialect, PATH="/bin", HOME="/", AWS_REGION="us-east-1", GOOGLE_CLOUD_PROJECT="mine") == []


@pytest.mark.parametrize(
    ("dialect", "name", "remedy"),
    [
        ("container", "AWS_ROLE_ARN", "in EKS remove the annotation"),
        ("imds", "AWS_ACCESS_KEY_ID", "clears them"),
        ("gce", "GOOGLE_APPLICATION_CREDENTIALS", "clears them"),
        ("appservice", "AZURE_CLIENT_SECRET", "clears them"),
        ("azure-imds", "AZURE_FEDERATED_TOKEN_FILE", "in AKS remove the label"),
        ("uri", "ALIBABA_CLOUD_ACCESS_KEY_ID", "clears them"),
        ("ecs", "ALIBABA_CLOUD_OIDC_TOKEN_FILE", "in ACK remove the label"),
    ],
)
def test_a_preferred_variable_is_named_without_its_value(dialect: str, name: str, remedy: str) -> None:
    (line,) = said(dialect, **{name: "canary"})
    assert f"SDKs prefer {name}, set here, to the endpoint" in line
    assert 'eval "$(wi-agent env one)"' in line
    assert remedy in line


@pytest.mark.parametrize(
    ("dialect", "name", "right", "wrong"),
    [
        ("container", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9481/aws/one/credentials", ELSEWHERE),
        ("imds", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9481", ELSEWHERE),
        ("gce", "GCE_METADATA_HOST", "127.0.0.1:9481", "127.0.0.1:9"),
        ("appservice", "IDENTITY_ENDPOINT", "http://127.0.0.1:9481/azure/one/token", ELSEWHERE),
        ("azure-imds", "AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9481", ELSEWHERE),
        ("uri", "ALIBABA_CLOUD_CREDENTIALS_URI", "http://127.0.0.1:9481/alibaba/one/canary/credentials", ELSEWHERE),
    ],
)
def test_a_variable_that_leads_elsewhere_is_named(dialect: str, name: str, right: str, wrong: str) -> None:
    assert said(dialect, **{name: right}) == []
    (line,) = said(dialect, **{name: wrong})
    assert f"{name}, set here, leads to another address than this endpoint" in line


@pytest.mark.parametrize("dialect", ["container", "imds", "gce", "appservice", "azure-imds"])
def test_a_proxy_without_no_proxy_is_named(dialect: str) -> None:
    (line,) = said(dialect, HTTP_PROXY="http://user:canary@proxy:3128")
    assert "set here, because NO_PROXY lacks the endpoint" in line
    assert len(said(dialect, http_proxy="http://proxy", NO_PROXY="localhost,.svc")) == 1
    assert said(dialect, HTTP_PROXY="http://proxy", NO_PROXY=".svc, 127.0.0.1,localhost") == []
    assert said(dialect, HTTP_PROXY="http://proxy", no_proxy="*") == []


@pytest.mark.parametrize("dialect", ["uri", "ecs"])
def test_a_proxy_that_sdks_use_for_the_endpoint_is_named(dialect: str) -> None:
    (line,) = said(dialect, HTTP_PROXY="http://proxy", NO_PROXY="127.0.0.1,localhost,100.100.100.200")
    assert "set here, even for the endpoint" in line


@pytest.mark.parametrize(("host", "absent"), [("127.0.0.1", False), ("127.8.8.8", False), ("192.0.2.1", True), ("2001:db8::1", True)])
def test_absent_finds_addresses_that_no_interface_has(host: str, *, absent: bool) -> None:
    assert endpoint_addresses.absent(host) is absent


def test_a_name_is_not_looked_up() -> None:
    assert not endpoint_addresses.absent("metadata.google.internal")


def test_each_missing_address_is_reported_once_with_its_command() -> None:
    found = endpoint_addresses.missing(case("imds", "127.0.0.1:9481", "192.0.2.1:80", "192.0.2.1:81", "[2001:db8::1]:80", "unix:/tmp/x"))
    assert list(found) == ["192.0.2.1", "2001:db8::1"]
    assert found["192.0.2.1"].remedy.endswith("ip address add 192.0.2.1/32 dev lo")
    assert found["2001:db8::1"].remedy.endswith("ip address add 2001:db8::1/128 dev lo")


@pytest.mark.parametrize(
    ("listen", "serve", "root"),
    [
        (["127.0.0.1:9481"], {}, "http://127.0.0.1:9481"),
        (["127.0.0.1:9481", "100.100.100.200:80"], {}, "http://100.100.100.200"),
        ([":80"], {}, "http://100.100.100.200"),
        (["100.100.100.200:9481"], {}, "http://100.100.100.200:9481"),
        (["127.0.0.1:9481", "100.100.100.200:9481"], {"port": 80}, "http://100.100.100.200"),
        (["127.0.0.1:9481", "100.100.100.200:9481", "100.100.100.200:80"], {}, "http://100.100.100.200"),
        (["127.0.0.1:9481", "100.100.100.200:80"], {"port": 8080, "default": False}, "http://127.0.0.1:8080"),
    ],
)
def test_alibabas_address_is_asked_if_the_agent_listens_there(listen: list[str], serve: dict[str, Any], root: str) -> None:
    one = case("ecs", *listen, serve=serve)
    where, host = endpoint_addresses.asked(one.config, one.identity, "ecs")
    assert where.root == root
    assert host == root.removeprefix("http://").partition(":")[0]
    assert endpoint_addresses.wired(where) is (root == "http://100.100.100.200")
