"""The AWS container dialect, on the wire: what every SDK has to be able to read, and what it is told where there is nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from agent.errors import Rejected, Unavailable
from agent.model import Key
from agent.serving.dialects.container import Container
from tests.fakes import FakeClock
from tests.serving.endpoint import CANARIES, NAME, Endpoint, Reply, endpoint


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint() as running:
        running.enrol()
        yield running


async def test_the_answer_has_every_member_that_any_sdk_wants_and_times_without_a_fraction(one: Endpoint) -> None:
    credential = one.grant()
    found = await one.ask()
    assert (found.status, found.headers["content-type"], found.headers["cache-control"]) == (200, "application/json", "no-store")
    assert found.headers["content-length"] == str(len(found.body))
    assert found.json == {
        "AccessKeyId": CANARIES[0],
        "SecretAccessKey": CANARIES[1],
        "Token": CANARIES[2],
        "Expiration": credential.expires_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "AccountId": "123456789012",
        "RoleArn": "arn:aws:iam::123456789012:role/s3-reader",
    }
    assert datetime.strptime(found.json["Expiration"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) <= credential.expires_at


async def test_a_newer_grant_is_served_from_the_moment_it_is_there(one: Endpoint) -> None:
    for tail in ("1", "2", "3"):
        one.grant(tail=tail)
        assert [(await one.ask()).json["AccessKeyId"] for _ in range(2)] == [f"{CANARIES[0]}{tail}"] * 2


async def test_an_identity_that_went_and_came_again_gets_nothing_of_the_old_one(one: Endpoint) -> None:
    one.grant(tail="-of-the-old-one")
    assert (await one.ask()).status == 200
    one.store.forget(NAME)
    assert (await one.ask()).status == 404
    one.enrol(authorization="authorization-of-the-new-one")
    one.grant(tail="-of-the-new-one")  # generation 1, as the old one was
    found = await one.ask(authorization="authorization-of-the-new-one")
    assert b"-of-the-new-one" in found.body
    assert b"-of-the-old-one" not in found.body
    one.enrol("another")
    one.grant("another")
    one.store.forget(NAME)
    await one.ask("/aws/another/credentials")
    assert set(one.server._rendered) == {"another"}, "nothing is kept of who is gone"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "PROPFIND"])
async def test_only_get_is_answered(one: Endpoint, method: str) -> None:
    one.grant()
    found = await one.ask(method=method)
    assert (found.status, found.headers["allow"]) == (405, "GET")
    assert not any(canary.encode() in found.raw for canary in CANARIES)


async def waiting(one: Endpoint) -> asyncio.Task[Reply]:
    """A request that waits for the first credential."""
    for dialect in one.server._dialects.values():
        dialect.timeout = 5.0
    asked = asyncio.create_task(one.ask())
    while not one.server._waiting:
        await asyncio.sleep(0)
    return asked


async def test_request_waits_for_the_first_credential(one: Endpoint) -> None:
    asked = await waiting(one)
    record = one.store.record(Key(NAME))
    assert record
    assert record.asked == {"wanted"}
    one.grant()
    assert (await asked).status == 200
    assert one.server._waiting == 0


async def test_waiting_request_is_not_answered_with_old_settings(one: Endpoint) -> None:
    asked = await waiting(one)
    one.enrol(authorization="authorization-of-the-new-one")
    one.grant()
    found = await asked
    assert (found.status, found.headers["retry-after"]) == (503, "1")
    assert (await one.ask(authorization="authorization-of-the-new-one")).status == 200


async def test_the_patience_is_less_than_botocores_two_seconds() -> None:
    async with endpoint(patience=Container.timeout) as one:
        one.enrol()
        began = asyncio.get_running_loop().time()
        found = await one.ask()
        assert 1.7 <= asyncio.get_running_loop().time() - began < 1.98
        assert found.status == 503


@pytest.mark.parametrize("error", [Unavailable("s3-reader: sts is away"), Rejected("s3-reader: AccessDenied", remedy="allow it")])
async def test_missing_credential_is_503_with_reason_and_retry_after(one: Endpoint, error: Unavailable | Rejected) -> None:
    one.store.attempted(Key(NAME), error, one.clock.now())
    found = await one.ask()
    assert (found.status, found.headers["retry-after"]) == (503, "1")
    assert found.json["code"] == "NotReady"
    assert error.message in found.json["message"]


async def test_beyond_the_cap_a_request_does_not_wait(one: Endpoint) -> None:
    one.server._waiting = one.server._may_wait
    found = await one.ask()
    assert (found.status, found.headers["retry-after"]) == (503, "1")
    assert "too many wait" in found.json["message"]
    assert one.server._waiting == one.server._may_wait
    one.grant()
    assert (await one.ask()).status == 200, "who need not wait is not held up"


async def test_stale_credential_is_counted_and_expired_one_is_not_served() -> None:
    clock = FakeClock()
    async with endpoint(None, clock) as one:
        one.enrol()
        one.grant()
        valid, stale = one.counters.handed_out_valid, one.counters.handed_out_stale
        for minutes, expected in ((0, (1, 0)), (40, (2, 0)), (40.1, (2, 1)), (59.9, (2, 2))):
            clock.jump(minutes * 60 - (clock.now() - one.store.newest(Key(NAME)).credential.issued_at).total_seconds())  # type: ignore[union-attr,operator]
            assert (await one.ask()).status == 200
            assert (valid[NAME, "endpoint"], stale[NAME, "endpoint"]) == expected, minutes
        clock.jump(6)
        found = await one.ask()
        assert found.status == 503
        assert not any(canary.encode() in found.raw for canary in CANARIES)
        assert one.counters.metadata_requests == {("container", "200"): 4, ("container", "503"): 1}


async def test_a_change_of_margins_is_heeded_at_once() -> None:
    clock = FakeClock()
    async with endpoint(None, clock) as one:
        one.enrol(margin=0.0)
        one.grant()
        clock.jump(45 * 60)
        await one.ask()
        one.enrol(margin=1200.0)
        await one.ask()
        assert (one.counters.handed_out_valid[NAME, "endpoint"], one.counters.handed_out_stale[NAME, "endpoint"]) == (1, 1)


async def test_a_grant_without_a_margin_is_late_once_it_is_stale() -> None:
    clock = FakeClock()
    async with endpoint(None, clock) as one:
        one.enrol(margin=0.0)
        one.grant()
        clock.jump(48 * 60 + 72)
        await one.ask()
        clock.jump(1)
        await one.ask()
        assert (one.counters.handed_out_valid[NAME, "endpoint"], one.counters.handed_out_stale[NAME, "endpoint"]) == (1, 1)


async def test_refusals_are_json_with_code_and_message(one: Endpoint) -> None:
    one.grant()
    for found, status in (
        (await one.ask(authorization=None), 401),
        (await one.ask(Forwarded="for=10.0.0.1"), 403),
        (await one.ask("/aws/nobody/credentials"), 404),
        (await one.ask(method="PUT"), 405),
    ):
        assert found.status == status
        assert found.headers["content-type"] == "application/json"
        assert found.headers["cache-control"] == "no-store"
        assert set(json.loads(found.body)) == {"code", "message"}


async def test_an_identity_that_is_not_served_is_as_one_that_is_not_there(one: Endpoint) -> None:
    one.enrol("private", served=False)
    one.grant("private")
    found = await one.ask("/aws/private/credentials")
    assert (found.status, found.body) == (404, (await one.ask("/aws/nobody/credentials")).body)


async def test_an_identity_without_an_authorization_is_served_to_nobody(one: Endpoint) -> None:
    one.enrol("open", authorization=None)
    one.grant("open")
    for authorization in (None, "", "None"):
        assert (await one.ask("/aws/open/credentials", authorization=authorization)).status == 401


async def test_what_is_kept_rendered_shows_nothing_in_a_traceback(one: Endpoint) -> None:
    one.grant()
    assert CANARIES[1].encode() in (await one.ask()).body
    assert one.server._rendered
    assert not any(canary in repr(one.server._rendered) for canary in CANARIES[1:])
