"""Source and provider as the keeper asks them."""

import asyncio

import pytest

from agent.errors import Defect, Rejected
from agent.record import Profile
from agent.rotation.exchanger import LEAST_LEFT, Exchanger
from tests.fakes import FakeClock, FakeProvider, FakeSource, settle

PROFILE = Profile(name="demo", digest="d", source="file", provider="aws", sinks=())


class Scene:
    def __init__(self, *, token: float = 3600.0, credential: float | None = 3600.0) -> None:
        self.clock = FakeClock()
        self.source = FakeSource(self.clock, lifetime=token)
        self.provider = FakeProvider(self.clock, lifetime=credential)
        self.exchanger = Exchanger(PROFILE, self.source, self.provider, self.clock)


async def test_who_asks_for_a_token_while_it_is_fetched_gets_the_same_one():
    scene = Scene()
    given = scene.source.fetch

    async def slowly(audiences):
        await scene.clock.sleep(1)
        return await given(audiences)

    scene.source.fetch = slowly
    both = [asyncio.ensure_future(scene.exchanger.fetch()) for _ in range(2)]
    await scene.clock.advance(1)
    await settle()
    first, second = (each.result() for each in both)
    assert first is second is scene.exchanger.token
    assert len(scene.source.script.calls) == 1
    scene.source.fetch = given
    assert await scene.exchanger.fetch() is not first, "who asks afterwards wants a new one"


async def test_a_token_is_used_up_before_its_end_and_after_a_refused_exchange():
    scene = Scene(token=LEAST_LEFT + 10)
    assert scene.exchanger.used_up(scene.clock.now())
    token = await scene.exchanger.fetch()
    assert not scene.exchanger.used_up(scene.clock.now())
    scene.provider.script.fault = Rejected("no")
    with pytest.raises(Rejected):
        await scene.exchanger.exchange(token, "")
    assert scene.exchanger.used_up(scene.clock.now())
    await scene.exchanger.fetch()
    assert not scene.exchanger.used_up(scene.clock.now())
    scene.clock.jump(11)
    assert scene.exchanger.used_up(scene.clock.now())


@pytest.mark.parametrize(("token", "credential"), [(0.0, 3600.0), (3600.0, 0.0)])
async def test_what_is_dead_when_it_comes_takes_the_place_of_nothing(token, credential):
    scene = Scene(token=token, credential=credential)
    with pytest.raises(Rejected, match="had expired when it came"):
        await scene.exchanger.exchange(await scene.exchanger.fetch(), "")
    if not token:
        assert scene.exchanger.token is None


async def test_what_nobody_knows_the_end_of_is_a_bug():
    scene = Scene(credential=None)
    token = await scene.exchanger.fetch()
    await scene.exchanger.exchange(token, "")  # the token's end is known
    with pytest.raises(Defect, match="no expiry"):
        await scene.exchanger.exchange(token, "scope")
