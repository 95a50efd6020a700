from datetime import UTC, datetime, timedelta

from agent.config.model import Identity
from agent.errors import Rejected
from agent.serviceaccounts.pace import FREE_CHANGES, LONGEST_REST_SECONDS, QUIET_SECONDS, Pace
from agent.serviceaccounts.wanted import Bound, Unbound
from agent.settings import convert

START = datetime(2026, 1, 1, tzinfo=UTC)
IDENTITY = convert(
    {"name": "x", "source": {"type": "file", "path": "/x"}, "provider": {"type": "generic", "audiences": ["a"]}},
    Identity,
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_a_flapping_serviceaccount_is_followed_ever_more_rarely() -> None:
    pace, now, rests = Pace(), 0.0, []
    for number in range(60):
        rest = pace.rest(Bound(IDENTITY, str(number)), at(now))
        rests.append(rest)
        now += rest or 0.02
    assert rests[:FREE_CHANGES] == [0.0] * FREE_CHANGES
    assert [rest for rest in rests if rest][:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(rests[index + 1] == 0 for index, rest in enumerate(rests[:-1]) if rest), "the first after a rest is free"


def test_a_quiet_minute_makes_changes_free_again() -> None:
    pace = Pace()
    for number in range(FREE_CHANGES):
        pace.rest(Bound(IDENTITY, str(number)), at(0))
    assert pace.rest(Bound(IDENTITY, "next"), at(0)) == 1
    assert pace.rest(Bound(IDENTITY, "next"), at(1)) == 0
    assert pace.rest(Bound(IDENTITY, "last"), at(1 + QUIET_SECONDS)) == 0


def test_the_longest_rest_does_not_count_as_quiet() -> None:
    pace, now = Pace(), 0.0
    for number in range(100):
        now += pace.rest(Bound(IDENTITY, str(number)), at(now))
    assert pace.rest(Bound(IDENTITY, "x"), at(now)) + pace.rest(Bound(IDENTITY, "y"), at(now)) == LONGEST_REST_SECONDS


def test_what_stays_the_same_costs_nothing() -> None:
    pace = Pace()
    for _ in range(100):
        assert pace.rest(Unbound(Rejected("no annotation")), at(0)) == 0
        assert pace.rest(Unbound(Rejected("no annotation")), at(0)) == 0
