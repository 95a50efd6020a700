"""The plan of one key: two clocks, one next moment."""

from datetime import timedelta
from random import Random

import pytest

from agent.errors import Rejected, Unavailable
from agent.model import Grant, Key
from agent.rotation.plan import MIN_IDLE_SECONDS, Plan, note_on
from agent.schedule import Backoff, Policy
from tests.fakes import START, FakeCredential, a_token

HOUR = 3600.0
STEADY = Policy(jitter=0.0)


def at(seconds):
    return START + timedelta(seconds=seconds)


def a_grant(generation=1, *, token=HOUR, credential=None, issued=START, began=None):
    ends = issued + timedelta(seconds=credential) if credential else None
    held = FakeCredential(issued if credential else None, ends)
    text = a_token(began or issued, token) if token else None
    return Grant(key=Key("demo"), digest="d1", token=text, credential=held, generation=generation)


def a_plan(*, token=STEADY, credential=STEADY):
    return Plan(token, credential, Random(1))


def fail(plan, now, *, token=False, credential=True, error=None, failures=1):
    plan.failed(error or Unavailable("down"), failures, now, Backoff(), token=token, credential=credential)


def test_where_nothing_is_held_it_is_time_now():
    plan = a_plan()
    assert plan.due(START) == START
    assert plan.began is None


def test_what_has_no_clock_at_all_is_never_due_at_once():
    plan = a_plan()
    plan.observe(a_grant(token=None, credential=None), START)
    assert plan.due(START) == at(STEADY.max_age)
    assert plan.due(at(STEADY.max_age)) == at(2 * STEADY.max_age)


@pytest.mark.parametrize(("token", "credential", "due"), [(600, HOUR, 480), (HOUR, 600, 480), (HOUR, None, 2880), (None, HOUR, 2880)])
def test_each_is_due_by_its_own_clock_and_the_sooner_counts(token, credential, due):
    plan = a_plan()
    plan.observe(a_grant(token=token, credential=credential), START)
    assert plan.due(START) == at(due)
    assert plan.token_due(at(due)) == (due == (token or 0) * 0.8)
    assert plan.credential_due(at(due)) == (due == (credential or 0) * 0.8)
    assert not plan.token_due(at(due - 1))
    assert not plan.credential_due(at(due - 1))


def test_a_variant_does_not_mind_the_token():
    plan = a_plan(token=None)
    plan.observe(a_grant(token=60, credential=HOUR), START)
    assert plan.due(START) == at(2880)
    assert not plan.token_due(at(3000))


def test_the_die_is_cast_once_for_each_grant():
    plan = a_plan(token=Policy())
    plan.observe(a_grant(), START)
    due = plan.due(START)
    plan.observe(a_grant(), at(5))
    plan.observe(a_grant(2), at(10))
    assert plan.due(at(10)) == due, "the same token under another number"
    plan.observe(a_grant(3, token=HOUR + 1), at(10))
    assert plan.due(at(10)) != due


def test_a_failure_sets_the_next_try_and_what_it_owes_is_due_then():
    plan = a_plan()
    plan.observe(a_grant(credential=HOUR), START)
    fail(plan, at(100), error=Rejected("no"))
    retry = plan.due(at(100))
    assert at(130) <= retry <= at(160)
    assert plan.backing_off(at(101))
    assert not plan.backing_off(retry)
    assert not plan.backing_off(at(99)), "a clock set back ends the back-off"
    assert plan.began == at(100)
    assert plan.credential_due(retry)
    assert not plan.token_due(retry)
    plan.succeeded(retry, token_unchanged=False, credential_unchanged=False)
    assert plan.due(retry) == at(2880)
    assert not plan.credential_due(retry)


def test_what_another_brought_is_owed_no_longer():
    plan = a_plan()
    plan.observe(a_grant(token=600, credential=HOUR), START)
    fail(plan, at(500), token=True, credential=False)
    assert plan.token_due(at(500))
    plan.observe(a_grant(2, token=600, began=at(500), credential=HOUR), at(500))
    assert not plan.token_due(at(500))
    plan.settled()
    assert plan.due(at(500)) == at(980)


def test_a_refresh_that_brought_nothing_newer_puts_off_only_that_part():
    plan = a_plan()
    plan.observe(a_grant(token=HOUR, credential=HOUR + 100), START)
    plan.succeeded(at(2880), token_unchanged=True, credential_unchanged=False)
    assert plan.due(at(2880)) == at(2960)
    assert not plan.token_due(at(2960))
    assert plan.token_due(at(3240))


def test_a_clock_set_back_makes_due_what_was_issued_after_it_and_nothing_else():
    plan = a_plan()
    plan.observe(a_grant(token=12 * HOUR, credential=HOUR, issued=at(1000), began=START), at(1000))
    assert plan.began == at(1000)
    assert plan.credential_due(at(999))
    assert not plan.token_due(at(999))
    plan.succeeded(at(999), token_unchanged=False, credential_unchanged=True)
    assert not plan.credential_due(at(999)), "nothing newer was to be had: that is not asked for again at once"
    assert plan.began == at(999)


def test_a_token_issued_in_the_future_counts_from_when_it_came():
    plan = a_plan()
    plan.observe(a_grant(issued=at(300)), START, token_brought=True)
    assert plan.began == START
    assert plan.due(START) == at(0.8 * 3900)


def test_a_grant_due_on_arrival_is_postponed_unless_it_was_adopted():
    old = a_grant(issued=at(-3000))
    brought, adopted = a_plan(), a_plan()
    brought.observe(old, START, token_brought=True)
    adopted.observe(old, START)
    assert brought.due(START) == at(30)
    assert adopted.due(START) == at(-120)


@pytest.mark.parametrize(
    ("used", "now", "idle"), [(0, HOUR - 1, False), (0, HOUR, True), (100, HOUR, False), (100, HOUR + 100, True), (100, 0, False)]
)
def test_a_variant_is_idle_after_one_lifetime_without_being_asked_for(used, now, idle):
    plan = a_plan(token=None)
    plan.observe(a_grant(credential=HOUR), START)
    assert plan.idle(at(used), at(now)) is idle


def test_a_variant_that_holds_nothing_is_idle_after_five_minutes():
    assert not a_plan(token=None).idle(START, at(MIN_IDLE_SECONDS - 1))
    assert a_plan(token=None).idle(START, at(MIN_IDLE_SECONDS))


def test_a_note_is_made_of_a_margin_that_a_grant_is_too_short_for_only():
    served = Policy(margin=1200)
    assert not note_on(a_grant(credential=HOUR), STEADY, served)
    assert not note_on(a_grant(credential=600), STEADY, STEADY)
    assert "the credential was granted for 900 s: its consumers want 1200 s left, they get 225 s" in note_on(
        a_grant(credential=900), STEADY, served
    )
    assert note_on(a_grant(token=300), Policy(margin=600), STEADY).startswith("the token was granted for 300 s")


def test_retry_after_ends_before_the_credential_though_the_token_has_expired():
    plan = a_plan()
    plan.observe(a_grant(token=600, credential=HOUR), START)
    fail(plan, at(3500), token=True, error=Unavailable("busy", retry_after=600.0))
    assert plan.due(at(3500)) == at(3590)
