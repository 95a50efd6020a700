"""The issuer's keys over months: what is signed can be verified, by whoever kept the key set as long as he may."""

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from structlog.testing import capture_logs

from agent.errors import ConfigError, NotReady, Rejected
from agent.issuer.keyring import Keyring
from tests.fakes import START, FakeClock

HOUR = 3600.0
DAY = 24 * HOUR
MONTHLY = {"every": 30 * DAY, "publish_before": DAY, "longest_lifetime": 48 * HOUR}
NASTY = {"every": 10.0, "publish_before": 9.0, "longest_lifetime": 60.0, "cache": 5.0}


def keyring(state: Path, clock: FakeClock, algorithm: Any = "ES256", **lengths: float) -> Keyring:
    return Keyring(state, algorithm, **{**MONTHLY, **lengths}, clock=clock)


def token(ring: Keyring, clock: FakeClock, lifetime: float) -> str:
    return ring.keys.sign({"iss": "https://issuer.example", "sub": "it", "exp": clock.now().timestamp() + lifetime})


def kid_of(text: str) -> str:
    return str(jwt.get_unverified_header(text)["kid"])


@cache
def parsed(jwk: str) -> jwt.PyJWK:
    return jwt.PyJWK(json.loads(jwk))


def verify(text: str, published: dict[str, Any]) -> dict[str, Any]:
    """As a verifier does that has just this key set; the fake clock's tokens expired long ago by the real one."""
    (jwk,) = [one for one in published["keys"] if one["kid"] == kid_of(text)]
    key = parsed(json.dumps(jwk))
    return jwt.decode(text, key, algorithms=[key.algorithm_name], options={"verify_exp": False})


def by_state(ring: Keyring) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"published": [], "signing": [], "retired": []}
    for kid, state, _ in ring.keys.states():
        found[state].append(kid)
    return found


class Witness:
    """Looks at each step: signs the longest token, and holds against the key set everything signed before."""

    def __init__(self, ring: Keyring, clock: FakeClock, lifetime: float, publish_before: float) -> None:
        self.ring, self.clock, self.lifetime, self.publish_before = ring, clock, lifetime, publish_before
        self.seen: dict[str, Any] = {}
        self.first = ""
        self.living: list[tuple[Any, str, str]] = []
        self.verified = 0

    def look(self) -> None:
        now = self.clock.now()
        published = self.ring.keys.public_keys()
        for key in published["keys"]:
            self.seen.setdefault(key["kid"], now)
        text = token(self.ring, self.clock, self.lifetime)
        verify(text, published)
        kid = kid_of(text)
        self.first = self.first or kid
        assert kid == self.first or now - self.seen[kid] >= timedelta(seconds=self.publish_before), "signs too soon after its publication"
        self.living.append((now + timedelta(seconds=self.lifetime), kid, text))
        known = {key["kid"] for key in published["keys"]}
        for expiry, its_kid, old in self.living:
            assert its_kid in known, f"the key of a token that lives until {expiry} is not published at {now}"
            if expiry - now <= timedelta(seconds=self.lifetime / 40):
                verify(old, published)
                self.verified += 1
        self.living = [one for one in self.living if one[0] > now]


@pytest.mark.parametrize(
    ("lengths", "step", "steps", "rotations"),
    [
        ({}, HOUR, 24 * 125, 4),
        (NASTY, 1.0, 200, 18),
        ({"every": 20.0, "publish_before": 1.0, "longest_lifetime": 3.0, "cache": 0.0}, 0.5, 400, 9),
    ],
    ids=["monthly, hour by hour", "each key outlives five successors", "hardly any overlap"],
)
async def test_every_valid_tokens_key_is_published_and_no_key_signs_too_early(
    tmp_path: Path, lengths: dict[str, float], step: float, steps: int, rotations: int
) -> None:
    clock = FakeClock()
    chosen = {**MONTHLY, **lengths}
    async with keyring(tmp_path / "state", clock, **lengths) as ring:
        witness = Witness(ring, clock, chosen["longest_lifetime"], chosen["publish_before"])
        for _ in range(steps):
            await ring.rotate()
            witness.look()
            clock.jump(step)
        assert len(witness.seen) > rotations
        assert witness.verified > rotations
        at_most = 3 + (chosen["longest_lifetime"] + chosen.get("cache", HOUR)) // chosen["every"]
        assert len(ring.keys.public_keys()["keys"]) <= at_most, "spent keys are dropped"
        assert len(list((tmp_path / "state").glob("*.pem"))) == len(ring.keys.public_keys()["keys"]), "and deleted"


async def test_an_rsa_key_is_named_by_its_public_half_and_the_set_holds_nothing_private(tmp_path: Path) -> None:
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    clock = FakeClock()
    async with keyring(tmp_path / "state", clock, "RS256") as ring:
        (published,) = ring.keys.public_keys()["keys"]
        assert set(published) == {"kty", "alg", "use", "kid", "n", "e"}
        assert (published["kty"], published["alg"], published["use"], published["e"]) == ("RSA", "RS256", "sig", "AQAB")
        text = token(ring, clock, 60)
        assert jwt.get_unverified_header(text) == {"alg": "RS256", "typ": "JWT", "kid": published["kid"]}
        assert verify(text, ring.keys.public_keys())["sub"] == "it"
        der = jwt.PyJWK(published).key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        assert published["kid"] == urlsafe_b64encode(sha256(der).digest()).rstrip(b"=").decode()


async def test_an_ec_key_is_published_with_its_point_and_nothing_private(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        (published,) = ring.keys.public_keys()["keys"]
        assert set(published) == {"kty", "alg", "use", "kid", "crv", "x", "y"}
        assert len(published["x"]) == len(published["y"]) == 43, "padded to the curve's 32 bytes (RFC 7518, 6.2.1.2)"
        assert "key" not in repr(ring).lower() or published["x"] not in repr(ring)


async def test_the_phases_of_a_key_follow_the_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        ((first, state, since),) = ring.keys.states()
        assert (state, since) == ("signing", START)
        clock.jump(29 * DAY - 1)
        await ring.rotate()
        assert len(ring.keys.states()) == 1
        clock.jump(1)
        await ring.rotate()
        _, (second, state, since) = ring.keys.states()
        assert (state, since) == ("published", START + timedelta(days=29))
        clock.jump(DAY)
        assert ring.keys.states() == [(first, "retired", START + timedelta(days=30)), (second, "signing", START + timedelta(days=30))]
        clock.jump(49 * HOUR - 1)
        await ring.rotate()
        assert [kid for kid, _, _ in ring.keys.states()] == [first, second]
        clock.jump(1)
        await ring.rotate()
        assert [kid for kid, _, _ in ring.keys.states()] == [second]


async def test_a_key_that_came_due_while_the_agent_was_off_is_published_in_time(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        ((first, _, _),) = ring.keys.states()
    clock.jump(100 * DAY)
    async with keyring(tmp_path / "state", clock) as ring:
        assert by_state(ring)["signing"] == [first]
        (second,) = by_state(ring)["published"]
        clock.jump(DAY - 1)
        await ring.rotate()
        assert kid_of(token(ring, clock, 60)) == first
        clock.jump(1)
        assert kid_of(token(ring, clock, 60)) == second


async def test_a_restart_keeps_every_key(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        clock.jump(29 * DAY)
        await ring.rotate()
        before, published, text = ring.keys.states(), ring.keys.public_keys(), token(ring, clock, 60)
    async with keyring(tmp_path / "state", clock) as ring:
        assert (ring.keys.states(), ring.keys.public_keys()) == (before, published)
        verify(text, ring.keys.public_keys())


async def test_a_clock_set_back_lets_the_key_before_sign_again_and_drops_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        clock.jump(29 * DAY)
        await ring.rotate()
        clock.jump(DAY + HOUR)
        first, second = (kid for kid, _, _ in ring.keys.states())
        assert kid_of(token(ring, clock, 60)) == second
        for back, signer in ((2 * HOUR, first), (365 * DAY, first)):
            clock.jump(-back)
            await ring.rotate()
            assert kid_of(token(ring, clock, 60)) == signer
            assert {key["kid"] for key in ring.keys.public_keys()["keys"]} == {first, second}, "nothing dropped, nothing made"
        clock.jump(365 * DAY + 2 * HOUR)
        await ring.rotate()
        assert kid_of(token(ring, clock, 60)) == second


async def test_a_clock_that_leaps_a_year_still_gives_the_next_key_its_time(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        ((first, _, _),) = ring.keys.states()
        clock.jump(365 * DAY)
        await ring.rotate()
        assert by_state(ring)["signing"] == [first]
        assert len(by_state(ring)["published"]) == 1


async def test_a_key_made_by_a_clock_that_ran_ahead_is_said_once(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        ((first, _, _),) = ring.keys.states()
        clock.jump(365 * DAY)
        await ring.rotate()
        clock.jump(-365 * DAY)
        with capture_logs() as logged:
            await ring.rotate()
            await ring.rotate()
        assert [entry["event"] for entry in logged] == ["key.dated_ahead"]
        assert kid_of(token(ring, clock, 60)) == first


async def test_tokens_of_a_longer_limit_keep_their_key_when_it_is_lowered(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock, longest_lifetime=20 * DAY) as ring:
        clock.jump(29 * DAY)
        await ring.rotate()
        clock.jump(DAY - 1)
        text = token(ring, clock, 20 * DAY)
    async with keyring(tmp_path / "state", clock, longest_lifetime=HOUR) as ring:
        clock.jump(20 * DAY)
        await ring.rotate()
        verify(text, ring.keys.public_keys())


async def test_a_raised_limit_holds_for_keys_that_were_made_under_the_lower_one(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock, longest_lifetime=HOUR):
        pass
    async with keyring(tmp_path / "state", clock, longest_lifetime=20 * DAY) as ring:
        clock.jump(29 * DAY)
        await ring.rotate()
        clock.jump(DAY - 1)
        text = token(ring, clock, 20 * DAY)
    async with keyring(tmp_path / "state", clock, longest_lifetime=HOUR) as ring:
        clock.jump(20 * DAY)
        await ring.rotate()
        verify(text, ring.keys.public_keys())


async def test_another_algorithm_is_published_first_and_signs_when_it_has_been_long_enough(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock, "RS256") as ring:
        assert ring.keys.algorithms() == ["RS256"]
    clock.jump(HOUR)
    async with keyring(tmp_path / "state", clock, "ES256") as ring:
        assert ring.keys.algorithms() == ["ES256", "RS256"]
        await ring.rotate()
        assert len(ring.keys.states()) == 2, "once"
        assert jwt.get_unverified_header(token(ring, clock, 60))["alg"] == "RS256"
        clock.jump(DAY)
        assert jwt.get_unverified_header(token(ring, clock, 60))["alg"] == "ES256"


async def test_the_key_set_may_be_cached_no_longer_than_a_key_is_published_before_it_signs(tmp_path: Path) -> None:
    assert keyring(tmp_path / "state", FakeClock()).keys.max_age == 3600
    assert keyring(tmp_path / "state", FakeClock(), publish_before=60.0).keys.max_age == 60


async def test_a_token_that_would_outlive_its_key_is_not_signed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        token(ring, clock, 48 * HOUR)
        with pytest.raises(Rejected, match=r"issuer\.lifetime\.max"):
            token(ring, clock, 48 * HOUR + 1)


async def test_two_agents_do_not_share_a_state(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        with pytest.raises(ConfigError, match="another agent uses it") as refusal:
            await keyring(tmp_path / "state", clock).open()
        assert str(tmp_path / "state") in refusal.value.message
        token(ring, clock, 60)
    async with keyring(tmp_path / "state", clock):
        pass  # and the lock goes with its holder


async def test_an_agent_waits_a_moment_for_an_export_or_its_predecessor_to_let_go(tmp_path: Path) -> None:
    clock = FakeClock()
    exporting = keyring(tmp_path / "state", clock)
    await exporting.open(shared=True)
    starting = keyring(tmp_path / "state", clock)
    opening = asyncio.create_task(starting.open())
    await asyncio.sleep(0.1)
    assert not opening.done()
    exporting.close()
    await opening
    assert starting.keys.public_keys() == exporting.keys.public_keys()
    starting.close()


async def test_a_second_reader_sees_what_is_published_and_changes_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        stray = tmp_path / "state" / "key-stray.pem"
        stray.touch()
        reader = keyring(tmp_path / "state", clock)
        await reader.open(shared=True)
        assert reader.keys.public_keys() == ring.keys.public_keys()
        assert stray.exists(), "what looks stray may be the other's change under way"
        reader.close()


async def test_a_reader_without_an_agent_makes_the_next_key_well_ahead_and_only_once(tmp_path: Path) -> None:
    clock = FakeClock()
    for _ in range(2):
        ring = keyring(tmp_path / "state", clock)
        await ring.open(shared=True)
        assert [state for _, state, _ in ring.keys.states()] == ["signing", "published"]
        assert ring.keys.complete_until == START + timedelta(days=60)
        ring.close()


@asynccontextmanager
async def running(ring: Keyring) -> AsyncIterator[None]:
    task = asyncio.create_task(ring.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def passing(clock: FakeClock, done: Any, *, step: float, at_most: int = 400) -> None:
    """Lets fake time pass, and real time for the threads that write."""
    for _ in range(at_most):
        if done():
            return
        await clock.advance(step)
        await asyncio.sleep(0.002)
    raise AssertionError("not so")


@contextmanager
def bad_disk(state: Path) -> Iterator[None]:
    """No index can be written: a directory stands where its new version would be made."""
    obstacle = state / ".newindex.json"
    obstacle.mkdir()
    yield
    obstacle.rmdir()


async def test_running_rotates_by_itself(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock, **NASTY) as ring, running(ring):
        seen: set[str] = set()

        def enough() -> bool:
            seen.update(key["kid"] for key in ring.keys.public_keys()["keys"])
            return len(seen) > 5

        await passing(clock, enough, step=1.0)


async def test_a_key_made_during_a_disk_failure_is_used_once_the_disk_works(tmp_path: Path) -> None:
    clock = FakeClock()
    state = tmp_path / "state"
    async with keyring(state, clock) as ring, running(ring):
        before = ring.keys.public_keys()
        with capture_logs() as logged:
            with bad_disk(state):
                clock.jump(30 * DAY)
                await passing(clock, lambda: len([entry for entry in logged if entry["event"] == "key.rotation_failed"]) >= 5, step=5.0)
                assert ring.keys.public_keys()["keys"][:1] == before["keys"]
                assert len(ring.keys.public_keys()["keys"]) == 2, "shown already: the disk may hold the date after all"
                assert kid_of(token(ring, clock, 60)) == before["keys"][0]["kid"]
                assert len(list(state.glob("*.pem"))) == 2, "one new key, however many tries"
            await passing(clock, lambda: len(ring.keys.states()) == 2, step=5.0)
        assert [entry["event"] for entry in logged][-2:] == ["key.published", "key.rotation_recovered"]
        (_, newcomer) = ring.keys.states()
        assert newcomer[2] > START + timedelta(days=30), "published since it could be, not since it should have been"
        assert len(list(state.glob("*.pem"))) == 2


@pytest.mark.parametrize("call", ["fsync", "rename"])
async def test_a_full_disk_is_not_filled_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    clock = FakeClock()
    state = tmp_path / "state"
    async with keyring(state, clock) as ring:
        before = {path.name for path in state.iterdir()}
        clock.jump(30 * DAY)
        with monkeypatch.context() as full:
            full.setattr(os, call, lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
            for _ in range(3):
                with pytest.raises(OSError, match="No space left"):
                    await ring.rotate()
                assert {path.name for path in state.iterdir()} == before
                assert len(ring.keys.states()) == 1
        await ring.rotate()
        assert len(ring.keys.public_keys()["keys"]) == 2


async def test_without_a_first_key_the_issuer_says_so_and_goes_on_trying(tmp_path: Path) -> None:
    clock = FakeClock()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    with bad_disk(state):
        ring = keyring(state, clock)
        await ring.open()
        with pytest.raises(NotReady, match="no key yet"):
            token(ring, clock, 60)
        assert ring.keys.states() == []
    async with running(ring):
        await passing(clock, lambda: ring.keys.states() != [], step=1.0)
        verify(token(ring, clock, 60), ring.keys.public_keys())
    ring.close()


async def test_a_key_is_shown_before_its_publication_is_dated(tmp_path: Path) -> None:
    """However long the disk takes to write the index, nobody can say that the key was published later than it says."""
    clock = FakeClock()
    async with keyring(tmp_path / "state", clock) as ring:
        shown: list[int] = []
        write = ring._store.index

        def slow(terms: Any) -> None:
            shown.append(len(ring.keys.public_keys()["keys"]))
            clock.jump(HOUR)
            write(terms)

        ring._store.index = slow  # type: ignore[method-assign]
        clock.jump(29 * DAY)
        await ring.rotate()
        assert shown == [2]
        assert ring.keys.states()[1][2] == START + timedelta(days=29)


def test_the_state_survives_being_killed_before_any_call_to_the_file_system(tmp_path: Path) -> None:
    """A rotation is lived through again and again, each time killed one call later, and looked at by a new process."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.issuer.story", str(tmp_path)]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["deaths"] > 50, result
    assert result["strays"] > 10, "some of them left something to clean up"
    assert result["tokens"] > result["deaths"], result
