"""`env` of the dialects imds and gce: at an identity's own port, at the default's well-known paths, or by a path."""

from typing import Any

import pytest

from tests.commands.test_env import LISTEN, READERS, REGION, Told, by_shell, told

__all__ = ["told"]  # a fixture
POOL = "projects/123456789012/locations/global/workloadIdentityPools/demo-pool/providers/demo-issuer"
GCP = {"type": "gcp", "workloadIdentityProvider": POOL}
NO_PROXY = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize(
    ("serve", "address"), [({}, f"{LISTEN}/aws/s3-reader/imds"), ({"default": True}, LISTEN), ({"port": 9490}, "127.0.0.1:9490")]
)
def test_instance_metadata(told: Told, form: str, serve: dict[str, Any], address: str) -> None:
    found = READERS[form](told("--format", form, serve={"dialects": ["imds", "container"], **serve}))
    assert found == {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{address}",
        "AWS_EC2_METADATA_V1_DISABLED": "true",
        **NO_PROXY,
        **REGION,
    }


def test_imds_clears_variables_that_win_or_disable_it(told: Told) -> None:
    before = dict.fromkeys(("AWS_EC2_METADATA_DISABLED", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_ROLE_ARN", "AWS_ACCESS_KEY_ID"), "x")
    assert not set(before) & set(by_shell(told(serve={"dialects": ["imds"]}), before))


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize(("serve", "address"), [({"default": True}, LISTEN), ({"port": 9490}, "127.0.0.1:9490")])
def test_a_metadata_server_of_googles(told: Told, form: str, serve: dict[str, Any], address: str) -> None:
    found = READERS[form](told("--format", form, provider=GCP, serve={"dialects": ["gce"], "gce": {"projectId": "demo"}, **serve}))
    assert found == {
        "GCE_METADATA_HOST": address,
        "GCE_METADATA_IP": address,
        "GCE_METADATA_ROOT": address,
        "METADATA_SERVER_DETECTION": "assume-present",
        "GOOGLE_CLOUD_PROJECT": "demo",
        "CLOUDSDK_CORE_PROJECT": "demo",
        **NO_PROXY,
    }


def test_gce_clears_variables_that_win_or_disable_it(told: Told) -> None:
    before = dict.fromkeys(("GOOGLE_APPLICATION_CREDENTIALS", "NO_GCE_CHECK", "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"), "x")
    assert not set(before) & set(by_shell(told(provider=GCP, serve={"dialects": ["gce"], "default": True}), before))


def test_an_address_of_ipv6_is_written_in_brackets(told: Told) -> None:
    found = by_shell(told(listen=["[::1]:9481"], provider=GCP, serve={"dialects": ["gce"], "port": 9490}))
    assert found["GCE_METADATA_HOST"] == "[::1]:9490"
    assert found["NO_PROXY"] == "127.0.0.1,localhost,::1"
