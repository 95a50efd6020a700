"""What an earlier process left is taken over, or is not."""

import asyncio
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from agent.errors import Rejected
from agent.model import Grant, Key, PriorDelivery, Secret
from tests.fakes import START, FakeCredential, FakeSink, FakeSource, a_token, delivery_of
from tests.rig import CANARY, HOUR, MINUTE, Rig


def left_behind(*, age=0.0, token_lifetime=HOUR, credential_lifetime=HOUR):
    token = a_token(START - timedelta(seconds=age), token_lifetime)
    credential = FakeCredential(START - timedelta(seconds=age), START + timedelta(seconds=credential_lifetime - age))
    delivery = delivery_of(Grant(key=Key("demo"), digest="d1", token=token, credential=credential), 0)
    return PriorDelivery(token=Secret(jwt(token)), files={}, delivery=delivery)


def jwt(token):
    from base64 import urlsafe_b64encode
    from json import dumps

    claims = {"iat": token.issued_at.timestamp(), "exp": token.expires_at.timestamp(), "jti": token.id}
    return ".".join(urlsafe_b64encode(dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)) + ".c2ln"


async def test_an_earlier_process_files_are_adopted_without_a_request_until_due():
    rig = Rig(credential=HOUR, jitter=0.0)
    sink = FakeSink(rig.clock)
    sink.prior = left_behind(age=10 * MINUTE)
    async with rig.running(rig.keeper().keep(sinks=[sink])):
        assert rig.record.grant.token.id == "t0"
        assert rig.record.sink_statuses[sink.name].generation == rig.record.grant.generation
        await rig.clock.advance(38 * MINUTE - 1)
        assert not rig.fetches
        assert not rig.exchanges
        await rig.clock.advance(2)
        assert rig.fetches == rig.exchanges == [38 * MINUTE]


async def test_a_token_that_its_source_disowns_is_not_adopted_and_said_with_a_remedy():
    class Lost(FakeSource):
        def confirm(self, token):
            assert token.id == "t0"
            raise Rejected("the issuer no longer has the key", remedy="restore it")

    rig = Rig(credential=HOUR)
    sink = FakeSink(rig.clock)
    sink.prior = left_behind(age=MINUTE)
    with capture_logs() as logs:
        async with rig.running(rig.keeper(source=Lost(rig.clock)).keep(sinks=[sink])):
            assert rig.record.grant.token.id != "t0"
    [said] = [line for line in logs if line["event"] == "generation.not_adopted"]
    assert (said["log_level"], said["remedy"], said["sink"]) == ("warning", "restore it", sink.name)


async def test_what_is_due_when_it_is_taken_over_is_replaced_at_once():
    rig = Rig(credential=HOUR)
    sink = FakeSink(rig.clock)
    sink.prior = left_behind(age=50 * MINUTE)
    async with rig.running(rig.keeper().keep(sinks=[sink])):
        assert rig.fetches == rig.exchanges == [0]


@pytest.mark.parametrize("how", ["token expired", "credential expired", "nothing", "rejected", "bug", "garbage", "hangs"])
async def test_what_cannot_be_taken_over_is_fetched_anew(how, monkeypatch):
    rig = Rig(credential=HOUR)
    sink, second = FakeSink(rig.clock, "files:/a"), FakeSink(rig.clock, "files:/b")
    token_lifetime, credential_lifetime = {"token expired": (HOUR, 9 * HOUR), "credential expired": (9 * HOUR, HOUR)}.get(
        how, (9 * HOUR,) * 2
    )
    prior = left_behind(age=HOUR, token_lifetime=token_lifetime, credential_lifetime=credential_lifetime)
    sink.prior = None if how == "nothing" else prior
    if how == "garbage":
        sink.prior = PriorDelivery(token=Secret(CANARY), files={}, delivery=prior.delivery)
    sink.adopting.fault = {"rejected": Rejected("foreign"), "bug": KeyError(CANARY)}.get(how)
    sink.adopting.hanging = how == "hangs"
    monkeypatch.setattr("agent.rotation.adoption.ADOPTION_TIMEOUT_SECONDS", 0.02)
    with capture_logs() as logs:
        async with rig.running(rig.keeper().keep(sinks=[sink, second])):
            await asyncio.sleep(0.05)
            assert len(second.adopting.calls) == 1, "the next sink is asked"
            assert rig.fetches == [0]
            assert rig.record.grant.generation == 1
    assert CANARY not in str(logs)
