"""How the doctor asks in Azure's and Alibaba Cloud's dialects, and what it shows of the answers."""

import aiohttp
import pytest

from agent.doctor.asking import ASKED, Asker, Reply
from agent.model import Secret
from agent.variables import Spot
from tests.serving import alibaba, azure
from tests.serving.endpoint import AUTHORIZATION, Endpoint, endpoint


async def ask(one: Endpoint, dialect: str, name: str, authorization: str = AUTHORIZATION) -> Reply:
    facts = one.store.profile(name).facts  # type: ignore[union-attr]
    async with aiohttp.ClientSession() as session:
        return await ASKED[dialect](Asker(session, name, Secret(authorization), facts), Spot(dialect=dialect, base=one.url, root=one.url))


@pytest.mark.parametrize("dialect", ["appservice", "azure-imds"])
async def test_azures_are_asked_for_the_identitys_own_resource(dialect: str) -> None:
    async with endpoint() as one:
        azure.enrol(one, dialect, default=True)
        found = await ask(one, dialect, azure.NAME)
        assert (found.status, found.brings) == (503, "")
        assert "first credential is on the way" in found.reason
        azure.grant(one)
        found = await ask(one, dialect, azure.NAME)
        assert (found.status, found.brings) in {(200, "an access token for 3599 s"), (200, "an access token for 3600 s")}
        if dialect == "appservice":
            found = await ask(one, dialect, azure.NAME, "wrong")
            assert (found.status, found.reason) == (401, "X-IDENTITY-HEADER does not hold this identity's authorization")


@pytest.mark.parametrize("dialect", ["uri", "ecs"])
async def test_alibabas_are_asked_and_no_authorization_is_shown(dialect: str) -> None:
    async with endpoint() as one:
        alibaba.enrol(one, dialect, default=True)
        found = await ask(one, dialect, alibaba.NAME)
        assert (found.status, found.brings) == (503, "")
        assert "first credential is on the way" in found.reason
        alibaba.grant(one)
        found = await ask(one, dialect, alibaba.NAME)
        assert found.status == 200
        assert found.brings.startswith("a session until ")
        assert AUTHORIZATION not in found.url
        if dialect == "uri":
            assert found.url == f"{one.url}/alibaba/{alibaba.NAME}/…/credentials"
            found = await ask(one, dialect, alibaba.NAME, "wrong/../and?odd")
            assert (found.status, found.reason) == (401, "the path does not hold this identity's authorization")


def test_every_dialect_can_be_asked() -> None:
    from agent.dialects import DIALECTS
    from agent.serving.dialects import every

    assert set(ASKED) == set(DIALECTS) == {one.name for one in every()}
    for one in every():
        traits = DIALECTS[one.name]
        assert (bool(one.prefix), one.rooted) == (traits.named, traits.rooted)
