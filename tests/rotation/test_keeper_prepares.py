"""A provider that has to learn something where it runs is let do so before a token is asked for, and not earlier."""

from agent.errors import NotReady
from tests.fakes import FakeProvider
from tests.rig import HOUR, Rig


class Learning(FakeProvider):
    """Knows its audience only once it is prepared."""

    ready = False
    prepared = 0

    async def prepare(self) -> None:
        self.prepared += 1
        if not self.ready:
            raise NotReady("demo: not there yet")
        self.audiences = ("learnt",)


async def test_whom_the_token_is_for_is_learnt_before_it_is_fetched():
    rig = Rig(credential=HOUR)
    rig.provider = Learning(rig.clock, lifetime=HOUR)
    keeper = rig.keeper()
    assert rig.provider.prepared == 0, "not at start"
    async with rig.running(keeper.keep()):
        await rig.clock.advance(5)
        assert (rig.source.asked_for, rig.record.failure.reaction) == ([], "not_ready")
        rig.provider.ready = True
        await rig.clock.advance(10)
        assert rig.source.asked_for == [("learnt",)]
        assert rig.record.failure is None
