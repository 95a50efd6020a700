"""The arithmetic of key rotation, held against its promises for every rhythm and every way to be late."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.issuer import rotation
from agent.issuer.rotation import Rhythm
from tests.fakes import START

rhythms = st.builds(
    lambda every, share, longest, kept: Rhythm(every=every, publish_before=every * share, longest_lifetime=longest, cache=kept),
    st.integers(1, 2000),
    st.floats(0.01, 0.99),
    st.integers(1, 3000),
    st.integers(0, 500),
)


@settings(deadline=None, database=None)
@given(rhythms, st.lists(st.integers(1, 1500), min_size=5, max_size=60))
def test_an_agent_that_looks_whenever_it_likes_never_breaks_a_promise(rhythm: Rhythm, waits: list[int]) -> None:
    now = START
    terms = [rotation.first_term("0", now, rhythm)]
    signed: dict[str, object] = {}
    made = 1
    for wait in waits:
        now += timedelta(seconds=wait)
        gone = rotation.spent(terms, now, rhythm)
        for kid in gone:
            assert signed.get(kid, START) <= now, "dropped while a token of its may live, or a cache needs it"
        terms = [term for term in terms if term.kid not in gone]
        if rotation.publish_due(terms, rhythm) <= now:
            terms.append(rotation.next_term(terms, str(made), now, rhythm))
            made += 1
        assert terms == sorted(terms, key=lambda term: term.signs_from)
        for moment in [now, *(term.signs_from - timedelta(microseconds=1) for term in terms if term.signs_from > now)]:
            signer = terms[rotation.signing(terms, moment)]
            signed[signer.kid] = moment + timedelta(seconds=rhythm.longest_lifetime + rhythm.cache)
            assert signer.kid == "0" or moment - signer.published_at >= timedelta(seconds=rhythm.publish_before)
        assert rotation.next_change(terms, now, rhythm) >= now
        assert [state for _, state, _ in rotation.phases(terms, now)].count("signing") == 1


def test_a_key_dated_ahead_of_the_clock_is_neither_used_nor_followed() -> None:
    """As after a clock that ran a year ahead while a key was made: the key at hand signs on, and no pile of keys is made."""
    rhythm = Rhythm(every=100, publish_before=10, longest_lifetime=10)
    first = rotation.first_term("first", START, rhythm)
    ahead = rotation.next_term([first], "ahead", START + timedelta(days=365), rhythm)
    now = START + timedelta(days=3)
    assert rotation.signing([first, ahead], now) == 0
    assert rotation.publish_due([first, ahead], rhythm) > now
    assert rotation.spent([first, ahead], now, rhythm) == []
    assert rotation.dated_ahead([first, ahead], now, rhythm) == "ahead"
    assert rotation.dated_ahead([first, ahead], now + timedelta(days=365), rhythm) is None
