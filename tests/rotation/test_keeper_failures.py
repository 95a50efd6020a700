"""What a keeper makes of failures, and that they stay where they are."""

import asyncio

import pytest
from structlog.testing import capture_logs

from agent.errors import NotReady, Rejected, Unavailable
from agent.model import Key
from agent.record import Profile
from agent.rotation.keeper import KeeperOptions
from agent.rotation.limiter import FairLimiter
from agent.schedule import State
from tests.fakes import FakeProvider, FakeSource, settle
from tests.rig import CANARY, HOUR, MINUTE, Rig, seconds, vars_of


async def test_failures_are_retried_within_sixty_seconds_and_keep_the_grant():
    rig = Rig(credential=HOUR, jitter=0.0)
    async with rig.running():
        held = rig.record.grant
        rig.source.script.fault = rig.provider.script.fault = Unavailable("down")
        await rig.clock.advance(HOUR - 1)
        assert rig.record.grant is held
        assert rig.store.usable(Key("demo"), rig.clock.now()) is held
        assert rig.store.state("demo", rig.clock.now()) == State.STALE
        await rig.clock.advance(1)
        assert rig.store.usable(Key("demo"), rig.clock.now()) is None
        assert rig.store.newest(Key("demo")) is held
        assert rig.store.state("demo", rig.clock.now()) == State.EXPIRED
        gaps = [later - before for before, later in zip(rig.fetches[1:], rig.fetches[2:], strict=False)]
        assert 1 <= gaps[0] <= 2
        assert all(1 <= gap <= 60 for gap in gaps)
        assert max(gaps[:10]) > 30
        assert max(gaps[-4:]) < 5, "sooner as expiry nears"
        assert rig.record.failure.count == len(rig.fetches) - 1
        rig.source.script.fault = rig.provider.script.fault = None
        await rig.clock.advance(60)
        assert rig.record.failure is None
        assert rig.store.state("demo", rig.clock.now()) == State.FRESH


async def test_retry_after_is_honoured():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = Unavailable("throttled", retry_after=200)
    async with rig.running():
        await rig.clock.advance(199)
        assert rig.exchanges == [0]
        await rig.clock.advance(2)
        assert rig.exchanges == [0, 200]


@pytest.mark.parametrize(
    ("fault", "least", "most", "level"),
    [(NotReady("soon"), 6, 30, "info"), (Unavailable("down"), 5, 8, "warning"), (Rejected("no such role"), 2, 3, "error")],
)
async def test_not_ready_is_retried_often_and_rejected_slowly_with_an_error(fault, least, most, level):
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = fault
    with capture_logs() as logs:
        async with rig.running():
            await rig.clock.advance(MINUTE)
    assert least <= len(rig.exchanges) <= most
    said = [entry["log_level"] for entry in logs if entry["event"] == "refresh.failed"]
    assert said[0] == level
    assert set(said[1:]) <= {"debug"}, "said once"


async def test_a_recovery_is_said_once():
    rig = Rig()
    rig.source.script.fault = Unavailable("down")
    with capture_logs() as logs:
        async with rig.running():
            await rig.clock.advance(10)
            rig.source.script.fault = None
            await rig.clock.advance(HOUR)
    assert [entry["event"] for entry in logs].count("refresh.recovered") == 1


async def test_where_the_exchange_fails_the_new_token_still_goes_on_its_way():
    rig = Rig(credential=HOUR, jitter=0.0)
    async with rig.running():
        before = rig.record.grant
        rig.provider.script.fault = Unavailable("down")
        await rig.clock.advance(50 * MINUTE)
        assert rig.record.grant.token.id == "t2"
        assert rig.record.grant.credential is before.credential
        assert rig.fetches == [0, 2880], "the token is there: only the exchange is tried again"
        assert len(rig.exchanges) > 4


async def test_where_the_exchange_hangs_the_new_token_still_goes_on_its_way():
    rig = Rig(credential=HOUR, jitter=0.0, timeout=0.05)
    async with rig.running():
        rig.provider.script.hanging = True
        await rig.clock.advance(48 * MINUTE)
        await asyncio.sleep(0.1)
        await settle()
        assert rig.record.grant.token.id == "t2"
        assert rig.record.failure.reaction == "unavailable"


@pytest.mark.parametrize(
    ("source", "provider", "said"),
    [
        ("", "sts.example", "no answer from sts.example within 0.05 s"),
        ("api.example", "", "no answer from api.example within 0.05 s"),
        ("api.example", "sts.example", "no answer from api.example or sts.example within 0.05 s"),
        ("sts.example", "sts.example", "no answer from sts.example within 0.05 s"),
        ("", "", "no answer from source fake or provider fake within 0.05 s"),
    ],
)
async def test_who_did_not_answer_is_named(source, provider, said):
    rig = Rig(credential=HOUR, timeout=0.05, host=provider)
    rig.source.host = source
    rig.source.script.hanging = True
    async with rig.running():
        await asyncio.sleep(0.1)
        await settle()
        assert rig.record.failure.message == f"demo: {said}"


async def test_while_the_first_exchange_fails_the_token_at_hand_is_not_fetched_again():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = Unavailable("down")
    async with rig.running():
        await rig.clock.advance(30 * MINUTE)
    assert rig.fetches == [0]
    assert len(rig.exchanges) > 30


async def test_a_token_that_an_exchange_was_refused_with_is_not_tried_again():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = Rejected("unknown key")
    async with rig.running():
        await rig.clock.advance(5 * MINUTE)
    tokens = [token for token, _ in rig.provider.exchanged]
    assert len(tokens) == len(set(tokens)) > 3


async def test_a_pod_without_a_token_exchanges_nothing_for_its_credential():
    rig = Rig(credential=HOUR)

    async def fetch(audiences):
        return None

    rig.source.fetch = fetch
    async with rig.running():
        await rig.clock.advance(HOUR)
        assert rig.record.grant.token is None
        assert len(rig.exchanges) == 2


async def test_a_bug_is_kept_to_its_identity_and_nothing_it_said_is_repeated():
    rig = Rig(credential=HOUR)
    rig.provider.script.fault = KeyError(CANARY)
    with capture_logs() as logs:
        async with rig.running():
            await rig.clock.advance(5 * MINUTE)
    assert rig.record.failure.reaction == "defect"
    assert "KeyError" in rig.record.failure.message
    assert rig.count("defect") == len(rig.exchanges) <= 11
    assert CANARY not in f"{logs} {rig.record}"
    assert "fakes.py" in str(logs), "where it happened is said"


async def test_a_hung_source_and_a_broken_provider_delay_no_other_identity():
    rig = Rig(credential=HOUR, jitter=0.0, timeout=0.05)
    loops = []
    others = {}
    for name in ("hangs", "breaks", "third"):
        profile = Profile(**{**vars_of(rig.profile), "name": name})
        source, provider = FakeSource(rig.clock), FakeProvider(rig.clock, lifetime=HOUR)
        source.script.hanging = name == "hangs"
        provider.script.fault = KeyError(CANARY) if name == "breaks" else None
        rig.store.enrol(profile)
        others[name] = source
        loops.append(rig.keeper(profile, source, provider).keep())
    async with rig.running(rig.keeper().keep(), *loops):
        for _ in range(2):
            await rig.clock.advance(50 * MINUTE)
            await asyncio.sleep(0.06)
        assert seconds(others["third"].script.calls) == rig.fetches == [0, 2880, 5760]
        assert rig.store.record(Key("hangs")).failure.reaction == "unavailable"
        assert "0.05 s" in rig.store.record(Key("hangs")).failure.message
        assert rig.store.record(Key("breaks")).failure.reaction == "defect"


async def test_five_hundred_hanging_identities_of_one_tenant_do_not_delay_anothers():
    rig = Rig(credential=HOUR, host="sts.example", timeout=30.0)
    rig.limiter = FairLimiter(16)
    hanging = FakeProvider(rig.clock, lifetime=HOUR, host="sts.example")
    hanging.script.hanging = True
    loops = []
    for number in range(500):
        profile = Profile(**{**vars_of(rig.profile), "name": f"a{number}"})
        rig.store.enrol(profile)
        loops.append(rig.keeper(profile, provider=hanging, options=KeeperOptions(timeout=30.0, namespace="a")).keep())
    async with rig.running(*loops, rig.keeper(options=KeeperOptions(timeout=30.0, namespace="b")).keep()):
        assert rig.record.grant
        assert len(hanging.script.calls) == 8, "half of the slots"
