"""The schedule's arithmetic, row by row of the contract."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from agent.errors import Reaction
from agent.schedule import (
    Backoff,
    Policy,
    Span,
    State,
    granted_margin,
    refresh_due,
    retry_delay,
    soonest_due,
    state_of,
    unchanged_due,
    worst,
)
from tests.fakes import START

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def span(lifetime, issued=START):
    return Span(issued, issued + timedelta(seconds=lifetime))


def after(seconds):
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize("lifetime", [10, 20, 60, 600, 900, HOUR, 12 * HOUR, DAY])
def test_a_refresh_is_due_between_75_and_80_percent_of_the_lifetime_and_never_later(lifetime):
    random = Random(lifetime)
    dues = [(refresh_due(span(lifetime), Policy(), random.random()) - START).total_seconds() / lifetime for _ in range(1000)]
    assert all(0.75 <= due <= 0.8 for due in dues)
    assert max(dues) - min(dues) > 0.045, "the jitter is used"


def test_without_jitter_a_refresh_is_due_at_exactly_the_configured_share():
    assert refresh_due(span(HOUR), Policy(at=0.7, jitter=0.0), 0.99) == after(0.7 * HOUR)


@pytest.mark.parametrize(
    ("lifetime", "margin", "due"),
    [
        pytest.param(HOUR, 0, 48 * MINUTE, id="an AWS session of 1 h that is only written to files"),
        pytest.param(HOUR, 20 * MINUTE, 40 * MINUTE, id="the same served to the container endpoint"),
        pytest.param(HOUR, 25 * MINUTE, 35 * MINUTE, id="served by IMDS"),
        pytest.param(HOUR, 5 * MINUTE, 48 * MINUTE, id="a margin smaller than what 80 % leave changes nothing"),
        pytest.param(12 * HOUR, 65 * MINUTE, 9.6 * HOUR, id="a long session keeps to 80 %"),
        pytest.param(80 * MINUTE, 60 * MINUTE, 20 * MINUTE, id="a margin of just 75 % is kept"),
        pytest.param(HOUR, 65 * MINUTE, 45 * MINUTE, id="one beyond the whole lifetime becomes 25 %"),
        pytest.param(15 * MINUTE, 20 * MINUTE, 11.25 * MINUTE, id="a short grant: 25 % of it is left"),
        pytest.param(26 * MINUTE, 20 * MINUTE, 19.5 * MINUTE, id="a margin just beyond 75 % becomes 25 %"),
    ],
)
def test_a_margin_makes_a_refresh_earlier_unless_it_would_eat_the_grant(lifetime, margin, due):
    assert refresh_due(span(lifetime), Policy(margin=margin)) == after(due)


def test_a_margin_counts_against_the_life_granted_not_against_what_was_asked_for():
    policy = Policy(margin=20 * MINUTE)
    assert granted_margin(span(HOUR), policy) == 20 * MINUTE
    assert granted_margin(span(20 * MINUTE), policy) == 5 * MINUTE


def test_what_lives_for_a_week_is_replaced_at_the_greatest_age():
    assert refresh_due(span(7 * DAY), Policy(max_age=DAY)) == after(DAY)
    assert refresh_due(span(HOUR), Policy(max_age=10 * MINUTE)) == after(10 * MINUTE)


@pytest.mark.parametrize(("at", "jitter"), [(0.1, 0.5), (0.01, 0.5), (0.5, 0.5)])
def test_more_jitter_than_share_never_makes_a_thing_due_when_it_comes(at, jitter):
    assert refresh_due(span(HOUR), Policy(at=at, jitter=jitter), 0.999) >= after(HOUR * at / 2)


@pytest.mark.parametrize("max_age", [1.0, 8.6e13])
@pytest.mark.parametrize(("issued", "expires"), [(9891, 9892), (9892, 1970), (1970, 9892), (1970, 1970)])
def test_no_times_that_a_token_can_carry_make_the_reckoning_overflow(issued, expires, max_age):
    odd = Span(datetime(issued, 6, 1, tzinfo=UTC), datetime(expires, 1, 1, tzinfo=UTC))
    policy = Policy(max_age=max_age, margin=20 * MINUTE)
    assert refresh_due(odd, policy, 0.5)
    assert unchanged_due(odd, policy, START)
    assert state_of(odd, policy, START) in set(State)


@pytest.mark.parametrize(
    ("age", "wait"),
    [
        pytest.param(48 * MINUTE, 6 * MINUTE, id="at 80 %: half of the 12 min that are left"),
        pytest.param(58 * MINUTE, MINUTE, id="later: half of 2 min"),
        pytest.param(59.5 * MINUTE, 30, id="never sooner than 30 s"),
        pytest.param(70 * MINUTE, 30, id="nor where it has expired"),
        pytest.param(42 * MINUTE, 6 * MINUTE, id="asked for ahead of its time: not later than was due anyway"),
        pytest.param(0, 30 * MINUTE, id="just issued: half of it"),
    ],
)
def test_a_refresh_that_brought_nothing_newer_is_repeated_at_half_of_what_remains(age, wait):
    assert unchanged_due(span(HOUR), Policy(), after(age)) == after(age + wait)


@pytest.mark.parametrize("policy", [Policy(), Policy(at=0.3), Policy(at=0.1, jitter=0.5), Policy(margin=40 * MINUTE), Policy(max_age=10)])
@pytest.mark.parametrize("lifetime", [20, 60, HOUR, DAY])
def test_what_is_new_when_it_comes_is_not_put_off_by_the_pause_after_what_is_old(policy, lifetime):
    assert soonest_due(span(lifetime), policy, START) <= refresh_due(span(lifetime), policy, 0.999)


@pytest.mark.parametrize(("left", "pause"), [(600, 30), (60, 15), (8, 2), (1, 1), (-5, 1)])
def test_what_was_old_when_it_came_is_not_asked_for_again_without_a_pause(left, pause):
    assert soonest_due(span(HOUR), Policy(), after(HOUR - left)) == after(HOUR - left + pause)


def delays(reaction, failures, **more):
    backoff = more.pop("backoff", Backoff())
    random = Random(1)
    return [retry_delay(Reaction(reaction), failures, backoff, random, **more) for _ in range(500)]


@pytest.mark.parametrize(
    ("failures", "low", "high"), [(1, 1, 2), (2, 2, 4), (3, 4, 8), (5, 16, 32), (6, 30, 60), (50, 30, 60), (10**6, 30, 60)]
)
def test_failures_are_repeated_after_one_second_to_sixty_doubling_with_jitter(failures, low, high):
    found = delays("unavailable", failures)
    assert low <= min(found) < low * 1.05
    assert high * 0.95 < max(found) <= high


def test_what_passes_by_itself_is_tried_soon_and_what_a_person_must_change_slowly():
    assert max(delays("not_ready", 1)) <= 2
    assert max(delays("not_ready", 40)) <= 10
    assert min(delays("rejected", 1)) >= 30
    assert min(delays("defect", 1)) >= 30


@pytest.mark.parametrize("reaction", ["not_ready", "unavailable", "rejected", "defect"])
def test_tries_come_closer_as_expiry_nears_but_never_closer_than_the_first(reaction):
    assert max(delays(reaction, 20, remaining=20.0)) <= 5
    assert set(delays(reaction, 20, remaining=0.5)) == {1.0}


def test_what_has_expired_already_is_tried_at_the_usual_pace():
    assert min(delays("unavailable", 20, remaining=-1.0)) >= 30


def test_retry_after_is_obeyed_up_to_ten_minutes():
    assert set(delays("unavailable", 1, retry_after=120.0, remaining=400.0)) == {120.0}
    assert set(delays("unavailable", 1, retry_after=120.0, remaining=-1.0)) == {120.0}
    assert set(delays("unavailable", 1, retry_after=1e9)) == {600.0}
    assert max(delays("unavailable", 1, retry_after=float("nan"))) <= 2
    assert max(delays("unavailable", 1, retry_after=-5.0)) <= 2


@pytest.mark.parametrize("retry_after", [20.0, 300.0, 1e9])
@pytest.mark.parametrize(("remaining", "delay"), [(24.0, 14.0), (120.0, 110.0), (10.0, 2.0), (2.0, 1.0)])
def test_retry_after_leaves_an_attempt_before_what_is_held_expires(retry_after, remaining, delay):
    found = delays("unavailable", 1, retry_after=retry_after, remaining=remaining)
    assert max(found) <= min(max(delay, 2.0), retry_after)
    assert max(found) < remaining
    if remaining > 20:
        assert set(found) == {min(delay, retry_after)}


def test_a_backoff_without_bounds_still_ends_within_a_day():
    assert max(delays("rejected", 1, backoff=Backoff(initial=1, max=8.6e13))) <= DAY


@pytest.mark.parametrize(
    ("lifetime", "age", "state"),
    [
        (HOUR, 0, State.FRESH),
        (HOUR, 48 * MINUTE + 72, State.FRESH),
        (HOUR, 48 * MINUTE + 73, State.STALE),
        (12 * HOUR, 9.6 * HOUR + 864, State.FRESH),
        (12 * HOUR, 9.6 * HOUR + 865, State.STALE),
        (600, 480 + 60, State.FRESH),
        (600, 480 + 61, State.STALE),
        (HOUR, HOUR - 1, State.STALE),
        (HOUR, HOUR, State.EXPIRED),
        (20, 19, State.FRESH),
        (20, 20, State.EXPIRED),
    ],
)
def test_stale_is_sixty_seconds_or_two_percent_past_due_whichever_is_more(lifetime, age, state):
    assert state_of(span(lifetime), Policy(), after(age)) == state


def test_what_is_not_there_is_missing_and_the_worst_state_counts():
    assert state_of(None, Policy(), START) == State.MISSING
    assert worst([]) == State.FRESH
    assert worst([State.FRESH, State.EXPIRED, State.STALE]) == State.EXPIRED
    assert worst([State.MISSING, State.EXPIRED]) == State.MISSING
