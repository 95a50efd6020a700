"""The provider that exchanges nothing."""

import json
from pathlib import PurePosixPath
from random import Random

from agent.counters import Counters
from agent.model import Delivery, Paths, PriorDelivery, Secret
from agent.providers.generic import GenericProvider, GenericSettings
from agent.toolbox import Toolbox
from tests.fakes import FakeClock, a_token


async def no_http():
    raise AssertionError("nothing is sent")


def a_provider(*audiences):
    tools = Toolbox(clock=FakeClock(), random=Random(1), counters=Counters(), http=no_http)
    return GenericProvider(GenericSettings(audiences=audiences), "demo", tools)


async def test_the_token_is_all_there_is_and_nobody_is_asked():
    provider = a_provider("a", "b")
    credential = await provider.exchange(a_token())
    assert provider.host == ""
    assert provider.audiences == ("a", "b")
    assert credential.issued_at is credential.expires_at is None
    assert credential.document() == {}


async def test_its_only_file_is_the_config_and_holds_no_token():
    files = (await a_provider("a").exchange(a_token())).files(Paths(directory=PurePosixPath("/var/run/wi")))
    assert {name: json.loads(text.reveal()) for name, text in files.items()} == {"config": {"audiences": ["a"]}}


async def test_an_earlier_process_left_all_that_is_needed():
    nothing = Delivery(generation=0, token_issued_at=None, token_expires_at=None, credential_issued_at=None, credential_expires_at=None)
    assert a_provider("a").restore(PriorDelivery(token=Secret("x"), files={}, delivery=nothing)).expires_at is None
