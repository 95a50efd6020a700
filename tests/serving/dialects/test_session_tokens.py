"""Session tokens that were shown before: remembered within bounds, and none longer than it lives."""

from datetime import UTC, datetime, timedelta

from agent.serving.dialects.session_tokens import MAX_CACHED_TOKENS, Presented, Sessions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_cached_token_expires_on_time_and_stays_one_identitys() -> None:
    sessions = Sessions()
    presented = Presented(sessions)
    token = sessions.open("one", 60, NOW)
    for _ in range(2):
        assert presented.knows(token, "one", NOW + timedelta(seconds=59.9))
        assert not presented.knows(token, "another", NOW)
    assert not presented.knows(token, "one", NOW + timedelta(seconds=60))
    assert not presented._known, "it has gone with its end"


def test_few_are_remembered_and_none_that_was_not_good() -> None:
    sessions = Sessions()
    presented = Presented(sessions)
    for number in range(200):
        assert not presented.knows(Sessions().open("one", 60, NOW), "one", NOW)
        assert not presented.knows(f"guess-{number}", "one", NOW)
        assert not presented.knows(sessions.open("one", 0, NOW), "one", NOW)
    assert not presented._known
    for _ in range(200):
        assert presented.knows(sessions.open("one", 60, NOW), "one", NOW)
        assert len(presented._known) <= MAX_CACHED_TOKENS
