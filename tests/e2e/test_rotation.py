"""Real time: tokens are replaced between 75 % and 80 % of their lifetime, and verify against the published keys."""

import os
import time
from datetime import UTC, datetime

import jwt
import pytest

from tests.e2e.daemon import Daemon, configuration, fetch, identity

ROTATIONS = 5


@pytest.mark.timeout(180)
def test_a_token_of_20_s_is_replaced_15_to_16_s_after_its_issue_time_and_again(daemon: Daemon) -> None:
    daemon.start(configuration(identity("quick", "20s")), "--log-level", "debug")
    directory = daemon.folder / "identities" / "quick"
    seen: list[dict[str, float]] = []
    dues: list[float] = []
    generation = ""
    last = time.monotonic() + 16.5 * (ROTATIONS + 1)
    while len(seen) <= ROTATIONS:
        assert time.monotonic() < last, seen
        found = os.readlink(directory / "..data")
        if found == generation:
            time.sleep(0.02)
            continue
        on_disk, generation = time.time(), found
        token = (directory / "token").read_text()
        keys = jwt.PyJWKSet.from_json(fetch(f"http://{daemon.address('issuer')}/jwks")[1])
        claims = jwt.decode(
            token,
            keys[jwt.get_unverified_header(token)["kid"]].key,
            algorithms=["ES256"],
            audience="demo",
            issuer="http://127.0.0.1:9482",
            options={"require": ["exp", "iat", "nbf", "sub", "jti"]},
        )
        assert claims["exp"] - claims["iat"] == 20
        seen.append({"iat": claims["iat"], "on_disk": on_disk})
        time.sleep(0.2)
        assert daemon.status()["quick"]["token"]["id"] == claims["jti"]
        due = datetime.strptime(daemon.status()["quick"]["nextRefresh"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        dues.append(due.timestamp())
    for before, due, after in zip(seen, dues, seen[1:], strict=False):
        assert 15.0 <= due - before["iat"] <= 16.0, "when the keeper meant to begin"
        assert due <= after["on_disk"], "not before it was due"
        assert after["iat"] in {int(due), int(due + 0.5)}, "signed as soon as it was due"
        assert after["on_disk"] - before["iat"] <= 16.5, "and soon on disk"
    assert daemon.metrics()['wi_agent_refresh_total{identity="quick",result="success"}'] == ROTATIONS + 1
    assert daemon.metrics()['wi_agent_tokens{state="fresh"}'] == 1
    daemon.stop()
    assert jwt.decode((directory / "token").read_text(), options={"verify_signature": False})["exp"] > time.time(), "left valid"
