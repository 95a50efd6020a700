"""What an answer says of who gave it, where no agent could be brought to give it."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from agent.dialects import DIALECTS
from agent.doctor.case import View
from agent.doctor.endpoint_requests import Asker, Reply
from agent.doctor.endpoint_verdict import judged
from agent.doctor.report import Finding, Verdict
from agent.envvars import ServedAt
from agent.model import Secret
from agent.refusals import Refusal
from tests.doctor.test_endpoint_answers import GOOD, RESOURCE
from tests.doctor.test_endpoint_environment import case
from tests.servers.site import Site

URL = "http://127.0.0.1:9481/x"
FAR = {"Expiration": "2999-01-01T00:00:00Z", "expires_on": "32472144000"}
PAST = {"Expiration": "2001-01-01T00:00:00Z", "expires_in": -1, "expires_on": "1000000000"}


def judge(dialect: str, status: int, body: object, *, code: str = "", refused: bool = False, running: bool = True) -> Finding:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    one = case(dialect)
    if running:
        one.view = View(socket="s", status={"identities": []})
    reply = Reply(URL, status, text, flavour="Google", kind="application/json", refusal=code)
    found = judged(one, dialect, reply, RESOURCE, refused=refused)
    assert "canary" not in found.text + found.remedy
    return found


def renewed(dialect: str, times: dict[str, Any]) -> dict[str, Any]:
    """A good answer with other times, for those that it has and writes so."""
    good = GOOD[dialect]
    return good | {name: value for name, value in times.items() if type(good.get(name)) is type(value)}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_whole_answer_is_ok_and_an_open_dialect_is_named(dialect: str) -> None:
    found = judge(dialect, 200, renewed(dialect, FAR))
    assert found.verdict is Verdict.OK
    assert found.text.startswith(f"{URL} answers 200: ")
    assert ("any process that reaches it gets a credential" in found.text) is not DIALECTS[dialect].authorized


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize("body", [b"", b"<html>canary</html>", {"login": "canary"}, ["canary"]])
def test_a_200_without_a_credential_is_another_programs(dialect: str, body: object) -> None:
    found = judge(dialect, 200, body)
    assert found.verdict is Verdict.BROKEN
    assert "answers 200 without the members that SDKs read (" in found.text
    assert "sport = :9481" in found.remedy


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_an_expired_credential_is_another_programs(dialect: str) -> None:
    found = judge(dialect, 200, renewed(dialect, PAST))
    assert found.verdict is Verdict.BROKEN
    assert "answers 200 with an expired credential (a" in found.text


def test_a_disallowed_resource_means_another_configuration() -> None:
    body = {"message": f"not allowed: name '{RESOURCE}' in provider.resources"}
    found = judge("appservice", 400, body, code="not-allowed")
    assert found.text == f"{URL} answers 400: {body['message']}"
    assert found.remedy.startswith("the running agent has another configuration")
    assert judge("appservice", 400, body, code="not-allowed", running=False).remedy.startswith("another agent listens on this port")


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 429, 500, 502, 503])
@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("code", ["", "canary"])
def test_answer_without_a_known_code_is_not_repeated(status: int, refused: bool, code: str) -> None:
    for body in (b"Cannot GET /alibaba/one/canary/credentials", {"message": "canary"}, {"message": "nothing is served here"}, b""):
        found = judge("uri", status, body, code=code, refused=refused)
        assert found.text == f"{URL} answers {status} without the agent's X-Wi-Agent-Refusal header: the program is not a wi-agent"


@pytest.mark.parametrize("code", list(Refusal))
def test_agent_is_recognised_by_its_code_whatever_it_says(code: Refusal) -> None:
    found = judge("uri", 418, {"Message": "reworded"}, code=code)
    assert found.verdict is Verdict.BROKEN
    assert f"{URL} answers " in found.text
    assert "wi-agent" not in found.text


def test_a_missing_credential_is_skipped_if_a_link_above_is_broken() -> None:
    body = {"Message": "one: nothing to hand out yet: its first credential is on the way"}
    assert judge("uri", 503, body, code="not-ready", refused=True).verdict is Verdict.SKIPPED
    found = judge("uri", 503, body, code="not-ready")
    assert found.remedy == "see the agent's line above; wi-agent renew one retries at once"
    found = judge("uri", 503, body, code="not-ready", running=False)
    assert found.text == f"{URL} answers 503: nothing to hand out yet: its first credential is on the way"


@pytest.mark.parametrize(
    ("code", "reason"), [("too-many-waiting", "too many wait already"), ("settings-changed", "its settings have just changed")]
)
def test_busy_agent_is_not_reported_as_a_missing_credential(code: str, reason: str) -> None:
    found = judge("uri", 503, {"Message": f"one: {reason}"}, code=code)
    assert found.text == f"{URL} answers 503: {reason}"
    assert found.remedy == "run the doctor again in a few seconds"


async def test_a_chunked_answer_is_read_to_its_end() -> None:
    async def give(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (b'{"message": ', b'"whole"}'):
            await response.write(part)
            await asyncio.sleep(0.05)
        return response

    async with Site() as site, aiohttp.ClientSession() as session:
        site.answer = give
        reply = await Asker(session, "one", Secret("x")).container(ServedAt(dialect="container", base=site.url))
    assert reply.reason == "whole"


async def test_an_endless_answer_is_read_up_to_the_limit() -> None:
    async def give(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(64):
            await response.write(b"x" * 65536)
        return response

    async with Site() as site, aiohttp.ClientSession() as session:
        site.answer = give
        reply = await Asker(session, "one", Secret("x")).container(ServedAt(dialect="container", base=site.url))
    assert len(reply.body) == 65536
