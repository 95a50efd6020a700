"""In a network of its own with the clouds' link-local addresses on loopback: SDKs that are told nothing find the agent.

GCE needs its name in the hosts file; where a container runtime or a pod's hostAliases would write it, a mount namespace does.
"""

import json
import sys
from typing import Any

import pytest
import yaml

from tests.e2e.aws import AWS
from tests.e2e.daemon import Daemon, configuration, identity
from tests.e2e.network import beside, delivered, namespaced, said
from tests.e2e.node import SCRIPTS, node_path

LISTEN = ["169.254.169.254:80", "169.254.170.2:80", "169.254.170.23:80", "[fd00:ec2::254]:80", "127.0.0.1:9481"]
SERVERS = """
import asyncio, json, sys
from pathlib import Path
from tests.servers.cloud import ROLE
from tests.servers.gcp import AUDIENCE, PATH, Gcp, Pool
from tests.servers.sts import Sts, Trust

async def main() -> None:
    issuer, roles, subjects = sys.argv[1], ROLE, json.loads(sys.argv[2])
    async with Sts({}) as sts, Gcp({}) as gcp:
        sts.trust = {ROLE: Trust(issuer=issuer, subject=subjects["aws"])}
        gcp.pools = {f"//iam.googleapis.com/{PATH}": Pool(issuer, (AUDIENCE,))}
        print(json.dumps({"sts": sts.url, "gcp": gcp.url}), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
BOTO3 = "import boto3; print(boto3.Session().get_credentials().access_key)"
GOOGLE = """
import google.auth, google.auth.transport.requests
credentials, project = google.auth.default()
credentials.refresh(google.auth.transport.requests.Request())
print(credentials.token, project)
"""


@pytest.mark.timeout(180)
def test_sdks_that_are_told_nothing_find_the_agent_at_the_clouds_own_addresses(daemon: Daemon) -> None:
    if reason := namespaced():
        pytest.skip(reason)
    issuer, subjects = "http://127.0.0.1:9482", {"aws": "system:serviceaccount:demo:aws", "gcp": "system:serviceaccount:demo:gcp"}
    with beside(daemon, SERVERS, issuer, json.dumps(subjects)) as (network, urls):
        delivered(daemon, network, _chosen(urls))
        assert said(daemon, network, sys.executable, "-c", BOTO3).startswith("ASIA")
        assert said(daemon, network, sys.executable, "-c", BOTO3, AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE="IPv6").startswith("ASIA")
        shown = {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(daemon.folder / "identities" / "aws" / "authorization")}
        for way in ({"RELATIVE_URI": "/aws/aws/credentials"}, {"FULL_URI": "http://169.254.170.23/aws/aws/credentials"}):
            named = {f"AWS_CONTAINER_CREDENTIALS_{name}": value for name, value in way.items()}
            assert said(daemon, network, sys.executable, "-c", BOTO3, **named, **shown).startswith("ASIA"), "as ECS and EKS have it"
        region = {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_ENDPOINT_URL_STS": urls["sts"]}  # the command line reads none from there
        assert said(daemon, network, AWS, "sts", "get-caller-identity", "--query", "Arn", "--output", "text", **region).startswith(
            "arn:aws:sts:"
        )
        modules = {"NODE_PATH": str(node_path())}
        assert json.loads(said(daemon, network, "node", str(SCRIPTS / "aws.cjs"), lines="\n", **modules).splitlines()[-1])[
            "key"
        ].startswith("ASIA")
        token, project = said(daemon, network, sys.executable, "-c", GOOGLE).split()
        assert len(token) > 16
        assert project == "demo-project"
        resource = f"{urls['gcp']}/resource"
        first, then = said(daemon, network, "node", str(SCRIPTS / "google.cjs"), resource, lines="\n", **modules).splitlines()
        assert json.loads(first)["project"] == "demo-project"
        assert json.loads(then)["principal"] == "system:serviceaccount:demo:gcp"


def _chosen(urls: dict[str, str]) -> dict[str, Any]:
    from tests.servers.cloud import ROLE
    from tests.servers.gcp import PATH

    aws = identity("aws", serve={"dialects": ["imds", "container"], "default": True})
    aws["provider"] = {"type": "aws", "roleArn": ROLE, "region": "eu-west-1", "endpoint": urls["sts"]}
    gcp = identity("gcp", serve={"dialects": ["gce"], "default": True, "gce": {"projectId": "demo-project"}})
    gcp["provider"] = {"type": "gcp", "workloadIdentityProvider": PATH, "endpoint": urls["gcp"]}
    found = configuration(aws, gcp, metadata={"listen": LISTEN})
    found["issuer"] |= {"listen": ["127.0.0.1:9482"]}
    return yaml.safe_load(yaml.safe_dump(found))  # type: ignore[no-any-return]
