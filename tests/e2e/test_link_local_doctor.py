"""The doctor at the clouds' own addresses: it asks where SDKs ask that are told nothing, and says which address is gone."""

import subprocess

import pytest

from tests.e2e.daemon import COMMAND, Daemon, configuration, identity
from tests.e2e.network import beside, delivered, namespaced
from tests.servers.alibaba_cloud import PROVIDER
from tests.servers.alibaba_cloud import ROLE as ACS_ROLE
from tests.servers.cloud import ROLE

ISSUER = "http://127.0.0.1:9482"
SERVERS = """
import asyncio, json, sys
from tests.servers import alibaba, alibaba_cloud
from tests.servers.cloud import ROLE
from tests.servers.sts import Sts, Trust

async def main() -> None:
    issuer, subject = sys.argv[1], "system:serviceaccount:demo:{}"
    trusted = alibaba.Trust(issuer=issuer, subject=subject.format("oss"), provider=alibaba_cloud.PROVIDER)
    trust = {ROLE: Trust(issuer=issuer, subject=subject.format("s3"))}
    async with Sts(trust) as sts, alibaba.AlibabaSts({alibaba_cloud.ROLE: trusted}) as oss:
        print(json.dumps({"s3": sts.url, "oss": oss.url}), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_what_is_gone_is_said_and_nobody_else_is_asked_in_its_place(daemon: Daemon) -> None:
    if reason := namespaced():
        pytest.skip(reason)
    with beside(daemon, SERVERS, ISSUER) as (network, urls):

        def inside(*command: str) -> subprocess.CompletedProcess[str]:
            whole = [*network.enter, *command]
            return subprocess.run(whole, env=daemon.environment, cwd=daemon.folder, capture_output=True, text=True, timeout=60, check=False)

        def doctor(name: str) -> tuple[int, str]:
            done = inside(*COMMAND, "doctor", name, "-c", str(daemon.file))
            return done.returncode, "\n".join(
                line for line in done.stdout.partition("\n\n")[0].splitlines() if "endpoint" in line or "→ as root" in line
            )

        s3 = identity("s3", serve={"dialects": ["imds"], "default": True})
        s3["provider"] = {"type": "aws", "roleArn": ROLE, "region": "eu-west-1", "endpoint": urls["s3"]}
        oss = identity("oss", serve={"dialects": ["ecs"], "default": True})
        oss["provider"] = {"type": "alibaba", "roleArn": ACS_ROLE, "oidcProviderArn": PROVIDER, "endpoint": urls["oss"]}
        config = configuration(s3, oss, metadata={"listen": ["169.254.169.254:80", "127.0.0.1:9481", "100.100.100.200:80"]})
        config["issuer"] |= {"listen": ["127.0.0.1:9482"]}
        delivered(daemon, network, config)
        code, text = doctor("s3")
        assert (code, "http://169.254.169.254:80/latest/meta-data/iam/security-credentials/s3-reader answers 200" in text) == (0, True), (
            text
        )
        code, text = doctor("oss")
        assert (code, "http://100.100.100.200/latest/meta-data/ram/security-credentials/oss-reader answers 200" in text) == (0, True), text
        assert "warning" not in text

        inside("ip", "address", "del", "100.100.100.200/32", "dev", "lo")
        code, text = doctor("oss")
        assert code == 3
        assert "100.100.100.200 is on no interface here" in text
        assert "answers" not in text
        remedy = text.rpartition("ip address add ")[2]
        assert remedy == "100.100.100.200/32 dev lo"
        inside("ip", "address", "add", *remedy.split())
        code, text = doctor("oss")
        assert (code, "answers 200" in text) == (0, True), text
