"""The waist: who may ask it what, and how an identity stands."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from agent.errors import NotReady, Rejected, Unavailable
from agent.model import Delivery, Grant, Key
from agent.record import Profile
from agent.schedule import Policy, State
from agent.store import VARIANTS, Store
from tests.fakes import START, FakeCredential, a_token, delivery_of, settle

KEY = Key("demo")
HOUR = 3600.0


def at(seconds):
    return START + timedelta(seconds=seconds)


def a_profile(name="demo", sinks=(), **more):
    return Profile(name=name, digest="d1", source="fake", provider="fake", sinks=tuple(sinks), **more)


def a_grant(key=KEY, *, token=HOUR, credential=None, issued=START):
    ends = issued + timedelta(seconds=credential) if credential else None
    held = FakeCredential(issued if credential else None, ends)
    return Grant(key=key, digest="d1", token=a_token(issued, token) if token else None, credential=held)


@pytest.fixture
def store():
    made = Store()
    made.enrol(a_profile())
    return made


# settings


@pytest.mark.parametrize("variant", ["", "other"])
def test_what_failed_under_other_settings_is_no_failure_of_these(store, variant):
    key = Key("demo", variant)
    store.enrol(a_profile(variants=("other",)))
    store.attempted(key, Unavailable("demo: 192.0.2.1 could not be reached"), START)
    store.enrol(a_profile(variants=("other",), required=False))
    assert store.record(key).failure, "what shaped the grant is as it was"
    store.enrol(replace(a_profile(variants=("other",)), digest="d2"))
    assert store.record(key).failure is None


# grants


def test_grants_are_numbered_and_the_newest_counts(store):
    assert store.newest(KEY) is None
    assert store.granted(a_grant()).generation == 1
    assert store.granted(a_grant()).generation == 2
    assert store.newest(KEY).generation == 2


def test_what_is_usable_is_what_has_not_expired_by_its_own_clock(store):
    store.granted(a_grant(token=60, credential=HOUR))
    assert store.usable(KEY, at(HOUR - 1)), "an exchanged credential outlives its token"
    assert store.usable(KEY, at(HOUR)) is None
    store.granted(a_grant(token=60))
    assert store.usable(KEY, at(59)), "where nothing was exchanged the token's clock counts"
    assert store.usable(KEY, at(60)) is None
    assert store.usable(Key("other"), START) is None


def test_changed_settings_leave_what_is_held_until_something_newer_is_granted(store):
    store.sink_checked(KEY, "files:/a", START, generation=1, delivery=None)
    store.granted(a_grant())
    record = store.enrol(a_profile(sinks=["files:/b"]))
    assert record.grant.generation == 1
    assert not record.sink_statuses, "a sink that is gone says nothing any more"


def test_an_identity_that_is_gone_can_no_longer_be_had(store):
    grant = store.granted(a_grant())
    store.granted(a_grant(store.open_variant(Key("demo", "v")).key))
    store.forget("demo")
    assert not list(store.profiles())
    assert store.newest(grant.key) is store.newest(Key("demo", "v")) is None
    store.forget("demo")
    store.attempted(KEY, Unavailable("late"), START)
    store.scheduled(KEY, START)
    store.settled(KEY)
    store.nudge(KEY)
    store.sink_checked(KEY, "files:/a", START, generation=1, delivery=None)
    assert store.record(KEY) is None, "who speaks of it late does not bring it back"


# want


async def test_a_usable_grant_is_handed_out_at_once_and_the_asking_is_noted(store):
    grant = store.granted(a_grant())
    assert await store.want(KEY, at(5), 0.0) is grant
    assert store.record(KEY).used_at == at(5)
    assert not store.record(KEY).wake.is_set()


async def test_a_herd_waits_once_for_the_one_grant_and_gets_it_together(store):
    herd = [asyncio.ensure_future(store.want(KEY, START, 5.0)) for _ in range(200)]
    await settle()
    assert store.record(KEY).asked == {"wanted"}
    store.sink_checked(KEY, "files:/a", START, generation=0, delivery=None)  # news of another kind
    await settle()
    grant = store.granted(a_grant())
    assert all(got is grant for got in await asyncio.gather(*herd))


async def test_a_wait_is_bounded_and_says_why_there_is_nothing(store):
    began = asyncio.get_running_loop().time()
    with pytest.raises(NotReady, match="its first credential is on the way"):
        await store.want(KEY, START, 0.05)
    store.attempted(KEY, Unavailable("sts.example is down"), START)
    with pytest.raises(NotReady, match=r"sts\.example is down"):
        await store.want(KEY, START, 0.05)
    assert asyncio.get_running_loop().time() - began < 1


async def test_what_has_expired_is_never_handed_out(store):
    store.granted(a_grant(credential=60))
    waiting = asyncio.ensure_future(store.want(KEY, at(60), 0.1))
    await settle()
    store.sink_checked(KEY, "files:/a", at(60), generation=1, delivery=None)
    store.granted(a_grant(credential=30))
    with pytest.raises(NotReady):
        await waiting


async def test_asking_wakes_the_keeper_unless_it_is_backing_off(store):
    with pytest.raises(NotReady):
        await store.want(KEY, START, 0.0)
    assert store.record(KEY).wake.is_set()
    store.record(KEY).wake.clear()
    store.attempted(KEY, Unavailable("down"), START)
    with pytest.raises(NotReady):
        await store.want(KEY, START, 0.0)
    assert not store.record(KEY).wake.is_set()


async def test_whoever_waits_for_an_identity_that_goes_is_told_at_once(store):
    waiting = asyncio.ensure_future(store.want(KEY, START, 30.0))
    await settle()
    store.forget("demo")
    with pytest.raises(NotReady):
        await asyncio.wait_for(waiting, 1.0)


async def test_an_identity_that_does_not_exist_is_refused_by_equality_and_not_by_prefix(store):
    for name in ("dem", "demo.x", "Demo", ""):
        with pytest.raises(Rejected, match="there is no identity"):
            await store.want(Key(name), START, 0.0)
        with pytest.raises(Rejected, match="there is no identity"):
            await store.want(Key(name, "v"), START, 0.0)
    assert store.newcomers.empty()


# variants


async def test_each_new_variant_asks_for_one_keeper_up_to_sixteen(store):
    for number in range(VARIANTS):
        for _ in range(3):
            with pytest.raises(NotReady):
                await store.want(Key("demo", f"v{number}"), START, 0.0)
    assert store.newcomers.qsize() == VARIANTS == 16
    with pytest.raises(Rejected, match="more than 16 variants"):
        await store.want(Key("demo", "one more"), START, 0.0)
    store.enrol(a_profile("other"))
    with pytest.raises(NotReady):
        await store.want(Key("other", "v"), START, 0.0)
    store.drop(Key("demo", "v3"))
    with pytest.raises(NotReady):
        await store.want(Key("demo", "one more"), START, 0.0)


async def test_the_least_recently_used_variant_gives_way(store):
    for number in range(VARIANTS):
        with pytest.raises(NotReady):
            await store.want(Key("demo", f"v{number}"), at(number), 0.0)
    store.record(Key("demo", "v0")).used_at = at(60)
    with pytest.raises(NotReady):
        await store.want(Key("demo", "one more"), at(60), 0.0)
    assert store.record(Key("demo", "v1")) is None
    assert store.record(Key("demo", "v0"))
    assert sum(1 for _ in store.records("demo")) == VARIANTS + 1


async def test_variants_just_asked_for_do_not_give_way(store):
    """Else a client that asks for one after the other causes an exchange by each request."""
    for number in range(VARIANTS):
        with pytest.raises(NotReady):
            await store.want(Key("demo", f"v{number}"), at(0), 0.0)
    with pytest.raises(Rejected, match="more than 16 variants"):
        await store.want(Key("demo", "one more"), at(9), 0.0)
    with pytest.raises(NotReady):
        await store.want(Key("demo", "one more"), at(10), 0.0)


async def test_requests_that_wait_for_a_variant_that_gives_way_are_answered(store):
    waiting = [asyncio.ensure_future(store.want(Key("demo", f"v{number}"), at(0), 30.0)) for number in range(VARIANTS)]
    await settle()
    with pytest.raises(NotReady):
        await store.want(Key("demo", "one more"), at(10), 0.0)
    await settle()
    assert [one.done() for one in waiting] == [True] + [False] * (VARIANTS - 1)
    with pytest.raises(NotReady):
        await waiting[0]
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_configured_variants_exist_from_the_start_beside_requested_ones(store):
    profile = a_profile("other", variants=tuple(f"c{number}" for number in range(20)))
    store.enrol(profile)
    assert [record.key.variant for record in store.records("other")] == ["", *profile.variants]
    for number in range(VARIANTS):
        with pytest.raises(NotReady):
            await store.want(Key("other", f"v{number}"), START, 0.0)
    with pytest.raises(NotReady):
        await store.want(Key("other", "c7"), START, 0.0)
    assert store.newcomers.qsize() == VARIANTS
    with pytest.raises(Rejected, match="more than 16 variants"):
        await store.want(Key("other", "one more"), START, 0.0)


async def test_variants_do_not_get_each_others_grants(store):
    store.granted(a_grant())
    with pytest.raises(NotReady):
        await store.want(Key("demo", "v"), START, 0.0)


# renew, nudge, change


def test_a_renewal_is_taken_once_in_ten_seconds(store):
    assert store.renew("demo", START)
    assert store.record(KEY).asked == {"renew"}
    assert not store.renew("demo", at(9.9))
    assert store.renew("demo", at(10))
    assert store.renew("demo", at(-HOUR)), "a clock set back does not lock it"


def test_a_renewal_is_of_the_variants_too_and_of_nobody_else(store):
    store.enrol(a_profile("demo2"))
    variant = store.open_variant(Key("demo", "v"))
    assert store.renew("demo", START)
    assert "renew" in variant.asked
    assert not store.record(Key("demo2")).asked
    with pytest.raises(Rejected, match="there is no identity"):
        store.renew("nobody", START)


async def test_who_follows_is_told_of_every_change(store):
    for step in (
        lambda: store.granted(a_grant()),
        lambda: store.attempted(KEY, Unavailable("down"), START),
        lambda: store.settled(KEY),
        lambda: store.sink_checked(KEY, "files:/a", START, generation=1, delivery=None),
        lambda: store.enrol(a_profile("new")),
        lambda: store.forget("new"),
    ):
        following = asyncio.ensure_future(store.change())
        await settle()
        assert not following.done()
        step()
        await asyncio.wait_for(following, 1.0)


def test_failures_are_counted_until_one_success(store):
    for count in (1, 2, 3):
        store.attempted(KEY, Unavailable("down", remedy="wait"), at(count))
        assert store.record(KEY).failure.count == count
    assert store.record(KEY).failure.remedy == "wait"
    store.attempted(KEY, None, at(4))
    assert store.record(KEY).failure is None
    assert store.record(KEY).attempts == 4


# states

SINK = "files:/a"


@pytest.mark.parametrize(
    ("token", "credential", "age", "expected"),
    [
        (HOUR, HOUR, 0, State.FRESH),
        (HOUR, HOUR, 2880 + 72, State.FRESH),
        (HOUR, HOUR, 2880 + 73, State.STALE),
        (HOUR, 12 * HOUR, 2880 + 73, State.STALE),
        (12 * HOUR, HOUR, 2880 + 73, State.STALE),
        (12 * HOUR, HOUR, HOUR, State.EXPIRED),
        (HOUR, 12 * HOUR, HOUR, State.EXPIRED),
        (HOUR, None, 2880 + 73, State.STALE),
        (None, HOUR, HOUR, State.EXPIRED),
    ],
)
def test_the_state_is_the_worst_of_token_and_credential(store, token, credential, age, expected):
    store.granted(a_grant(token=token, credential=credential))
    assert store.state("demo", at(age)) == expected


def test_a_margin_makes_a_credential_stale_earlier(store):
    store.enrol(a_profile(credential_policy=Policy(margin=1200)))
    store.granted(a_grant(token=12 * HOUR, credential=HOUR))
    assert store.state("demo", at(2400 + 72)) == State.FRESH
    assert store.state("demo", at(2400 + 73)) == State.STALE


def test_what_lies_in_a_sink_counts_as_it_was_read_back(store):
    store.enrol(a_profile(sinks=[SINK, "files:/b"]))
    assert store.state("demo", START) == State.MISSING
    old, new = store.granted(a_grant()), store.granted(a_grant(issued=at(3000)))
    assert store.state("demo", at(3000)) == State.MISSING, "nobody has looked yet"
    for sink in (SINK, "files:/b"):
        store.sink_checked(KEY, sink, at(3000), generation=2, delivery=delivery_of(new))
    assert store.state("demo", at(3000)) == State.FRESH
    store.sink_checked(KEY, SINK, at(3000), generation=1, delivery=delivery_of(old))
    assert store.state("demo", at(3000)) == State.STALE
    assert store.state("demo", at(3600)) == State.EXPIRED
    store.sink_checked(KEY, SINK, at(3000), generation=1, delivery=None)
    assert store.state("demo", at(3000)) == State.MISSING


def test_the_clocks_of_token_and_credential_count_in_a_sink_too(store):
    store.enrol(a_profile(sinks=[SINK]))
    store.granted(a_grant(token=12 * HOUR, credential=12 * HOUR))
    times = {"token_issued_at": START, "token_expires_at": at(12 * HOUR), "credential_issued_at": START, "credential_expires_at": at(HOUR)}
    store.sink_checked(KEY, SINK, START, generation=1, delivery=Delivery(generation=1, **times))
    assert store.state("demo", at(HOUR)) == State.EXPIRED


def test_delivered_is_what_lies_everywhere_and_works_and_recovers_by_itself(store):
    store.enrol(a_profile(sinks=[SINK]))
    assert not store.delivered("demo", START)
    grant = store.granted(a_grant())
    assert not store.delivered("demo", START)
    store.sink_checked(KEY, SINK, START, generation=1, delivery=delivery_of(grant))
    assert store.delivered("demo", START)
    assert store.delivered("demo", at(3599)), "stale is not unready"
    assert not store.delivered("demo", at(3600))
    newer = store.granted(a_grant(issued=at(3600)))
    assert not store.delivered("demo", at(3600))
    store.sink_checked(KEY, SINK, at(3600), generation=2, delivery=delivery_of(newer))
    assert store.delivered("demo", at(3600))


def test_ready_asks_for_the_required_ones_only(store):
    store.enrol(a_profile("optional", required=False))
    assert not store.ready(START)
    store.granted(a_grant())
    assert store.ready(START)
    assert Store().ready(START)
