"""Beside our own STS, one that somebody else wrote: the shape of the answers, and that the keys sign what SDKs ask."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.fakes import FakeClock
from tests.servers.cloud import ROLE, aws_settings, cloud

SECOND = "arn:aws:iam::210987654321:role/team/writer"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def caller(url: str, keys: dict[str, object]) -> str:
    """Who AWS says these keys are."""
    client = boto3.client(
        "sts",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"].reveal(),
        aws_session_token=keys["Token"].reveal(),
    )
    try:
        return str(client.get_caller_identity()["Arn"])
    finally:
        client.close()


async def test_moto_grants_a_session_that_boto3_can_use(moto: str) -> None:
    async with cloud() as aws:
        credential = await aws.provider(endpoint=moto, sessionName="demo", duration="30m").exchange(aws.issuer.token())
        document = credential.document()
        assert timedelta(minutes=29) < document["Expiration"] - datetime.now(UTC) <= timedelta(minutes=30)
        assert await asyncio.to_thread(caller, moto, document) == "arn:aws:sts::123456789012:assumed-role/s3-reader/demo"


async def test_moto_walks_a_chain(moto: str) -> None:
    chain = [{"roleArn": SECOND, "externalId": "tenant-7", "sessionTags": {"a": "b"}, "transitiveTags": ["a"]}]
    async with cloud() as aws:
        document = (await aws.provider(endpoint=moto, sessionName="demo", chain=chain).exchange(aws.issuer.token())).document()
        assert await asyncio.to_thread(caller, moto, document) == "arn:aws:sts::210987654321:assumed-role/writer/demo"


async def test_the_verifying_sts_takes_boto3s_signature_and_no_other() -> None:
    async with cloud() as aws:
        document = (await aws.provider(sessionName="demo").exchange(aws.issuer.token())).document()
        assert (await asyncio.to_thread(caller, aws.sts.url, document)).endswith(":assumed-role/s3-reader/demo")
        wrong = {**document, "SecretAccessKey": document["Token"]}
        with pytest.raises(Exception, match="SignatureDoesNotMatch"):
            await asyncio.to_thread(caller, aws.sts.url, wrong)


async def test_the_whole_exchange_runs_on_a_clock_that_stands_still() -> None:
    clock = FakeClock()
    async with cloud(clock=clock, now=clock.now) as aws:
        credential = await aws.provider().exchange(aws.issuer.token(now=clock.now()))
        assert (credential.issued_at, credential.expires_at) == (clock.now(), clock.now() + timedelta(hours=1))
        assert aws_settings().roles == (ROLE,)
