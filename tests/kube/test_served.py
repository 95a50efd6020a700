"""What clients of the metadata endpoint are told, over HTTP, while a ServiceAccount changes or goes."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from tests.kube.proxy import Fault
from tests.kube.scene import ANNOTATION, ROLE
from tests.processor import own_time
from tests.serving.endpoint import endpoint


class Client:
    """Asks without a pause, as long as its context is entered."""

    def __init__(self, scene, served):
        self._file = scene.folder / "app" / "authorization"
        self._served = served
        self.answers = []
        """(when it was asked, status, session token) of each."""

    @asynccontextmanager
    async def asking(self):
        task = asyncio.ensure_future(self._ask())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _ask(self):
        while True:
            authorization = self._file.read_text()  # anew each time, as SDKs do; it is there at every moment
            began = own_time()
            reply = await self._served.ask("/aws/app/credentials", authorization=authorization)
            token = json.loads(reply.body)["Token"] if reply.status == 200 else ""
            assert b"session-of-" not in reply.raw or token
            self.answers.append((began, reply.status, token))

    async def told(self, status, token="", within=60.0):
        async with asyncio.timeout(within):
            while not self.answers or self.answers[-1][1:] != (status, token):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def served(scene):
    """A client that has been given the credential of role `one`."""
    await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
    async with scene.running(), endpoint(scene.store, patience=0.05) as listening:
        await scene.until("one")
        client = Client(scene, listening)
        async with client.asking():
            await client.told(200, "session-of-one")
            yield client


@pytest.mark.parametrize("how", ["another role", "no role", "a hostile role", "deleted", "created anew"])
async def test_within_a_second_of_a_change_nobody_is_given_the_old_credential(scene, how):
    async with served(scene) as client:
        scene.cluster.proxy.always = Fault(status=503, match="/token")  # so that nothing new can be had
        match how:
            case "another role":
                await scene.cluster.annotate("app", {ANNOTATION: ROLE + "two"})
            case "no role":
                await scene.cluster.annotate("app", {ANNOTATION: None})
            case "a hostile role":
                await scene.cluster.annotate("app", {ANNOTATION: ROLE + "two\n"})
            case _:
                await scene.cluster.delete("ServiceAccount", "app")
        if how == "created anew":
            await scene.cluster.account("app", annotations={ANNOTATION: ROLE + "one"})
        changed = own_time()
        await asyncio.sleep(1.2)
        after = [answer for answer in client.answers if answer[0] > changed]
        first = next(index for index, (_, status, _) in enumerate(after) if status != 200)
        assert after[first][0] - changed < 1
        assert {status for _, status, _ in after[first:]} == {503}, "clients are told to come again, and it never comes back"


async def test_who_asks_during_the_change_is_given_the_next_credential_or_none(scene):
    async with served(scene) as client:
        await scene.cluster.annotate("app", {ANNOTATION: ROLE + "two"})
        await client.told(200, "session-of-two")
        tokens = [token for _, status, token in client.answers if status == 200]
        assert tokens == sorted(tokens), "one, and then two"
        assert {status for _, status, _ in client.answers} <= {200, 503}


async def test_clients_with_an_authorization_of_the_operators_are_told_why_and_to_come_again(scene):
    authorization = "of-the-operators-choice"
    async with scene.running(scene.config(serve={"dialects": ["container"], "authorization": authorization})):
        async with endpoint(scene.store, patience=0.05) as listening:
            for _ in range(2):
                async with asyncio.timeout(60):
                    while "no annotation" not in scene.failure:
                        await asyncio.sleep(0.01)
                reply = await listening.ask("/aws/app/credentials", authorization=authorization)
                assert (reply.status, reply.headers.get("retry-after")) == (503, "1")
                assert f"has no annotation {ANNOTATION}" in reply.json["message"]
                assert (await listening.ask("/aws/app/credentials", authorization="of-nobody")).status == 401
                await scene.cluster.annotate("app", {ANNOTATION: ROLE + "one"})
                await scene.until("one")
                assert (await listening.ask("/aws/app/credentials", authorization=authorization)).status == 200
                await scene.cluster.annotate("app", {ANNOTATION: None})
