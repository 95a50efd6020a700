"""Each dialect's endpoint, sound and broken in turn, word for word: what a person on call reads of it.

`WI_GOLDEN=write pytest tests/doctor` writes the files anew; read the difference before it is committed.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent.app import Parts
from agent.dialects import DIALECTS
from agent.model import Key
from tests.doctor.clouds import Realm, realm
from tests.doctor.scene import CONFIG, GOLDEN, NAME, Scene, failed, free_port
from tests.servers.site import Answer, Site

EVERY = sorted(DIALECTS)
GUARDED = [name for name in EVERY if DIALECTS[name].authorized]
ROOTED = [name for name in EVERY if DIALECTS[name].rooted]
WIRED = {"ecs": "100.100.100.200", "gce": "169.254.169.254", "azure-imds": "169.254.169.254", "imds": "169.254.169.254"}


async def expect(stage: Scene, name: str, *, links: tuple[str, ...] = ("agent", "endpoint"), code: int = 3) -> str:
    """The doctor's words about these links are those of the golden file, and its exit status is this."""
    found, text = await stage.doctor()
    golden, shown = GOLDEN / f"{name}.txt", _about(text, links)
    if os.environ.get("WI_GOLDEN") == "write":
        golden.write_text(shown)
    assert shown == golden.read_text()
    assert found == code, text
    return shown


def _about(text: str, links: tuple[str, ...]) -> str:
    """Their lines and remedies; what the cloud has to trust is another test's."""
    kept, link = [NAME], ""
    for line in text.partition("\n\n")[0].splitlines()[1:]:
        link = line.split()[0] if not line.strip().startswith("→") else link
        if link in links or not links:
            kept.append(line)
    return "\n".join(kept) + "\n"


def configured(stage: Scene, cloud: Realm, **serve: Any) -> dict[str, Any]:
    return stage.configuration(provider=cloud.provider, serve=cloud.serve(**serve))


@asynccontextmanager
async def served(stage: Scene, dialect: str, **serve: Any) -> AsyncIterator[tuple[Realm, Parts]]:
    """An agent that holds what this dialect hands out."""
    async with realm(stage, dialect) as cloud, stage.agent(configured(stage, cloud, **serve)) as parts:
        yield cloud, parts


@pytest.mark.parametrize("dialect", EVERY)
async def test_a_sound_chain_is_ok_in_every_dialect(stage: Scene, dialect: str) -> None:
    async with served(stage, dialect):
        await expect(stage, f"{dialect}-sound", links=(), code=0)


@pytest.mark.parametrize("dialect", ROOTED)
async def test_an_identity_with_a_port_of_its_own_is_asked_there(stage: Scene, dialect: str) -> None:
    stage.ports["own"] = free_port()
    async with realm(stage, dialect) as cloud:
        serve = {"dialects": [dialect], "port": stage.ports["own"]}
        async with stage.agent(stage.configuration(provider=cloud.provider, serve=serve)):
            text = await expect(stage, f"{dialect}-own-port", code=0)
    assert "<own>" in text
    assert "<endpoint>" not in text


@pytest.mark.parametrize("dialect", EVERY)
async def test_no_agent_runs(stage: Scene, dialect: str) -> None:
    async with served(stage, dialect):
        pass
    await expect(stage, f"{dialect}-no-agent")


@pytest.mark.parametrize("dialect", EVERY)
async def test_nothing_was_granted_yet(stage: Scene, dialect: str) -> None:
    async with realm(stage, dialect) as cloud:
        trust = dict(cloud.trust)
        cloud.trust.clear()
        async with stage.agent(configured(stage, cloud), delivered=False):
            cloud.trust.update(trust)
            await expect(stage, f"{dialect}-nothing-yet")


@pytest.mark.parametrize("dialect", EVERY)
async def test_the_granted_credential_has_expired(stage: Scene, dialect: str) -> None:
    async with served(stage, dialect) as (cloud, parts):
        cloud.trust.clear()
        grant = parts.store.newest(Key(NAME))
        assert grant
        credential: Any = grant.credential
        ended = replace(credential, issued_at=datetime.now(UTC) - timedelta(hours=2), expires_at=datetime.now(UTC) - timedelta(hours=1))
        parts.store.granted(replace(grant, credential=ended))
        parts.store.renew(NAME, datetime.now(UTC))
        async with asyncio.timeout(60):
            while not failed(parts):
                await parts.store.change()
        await expect(stage, f"{dialect}-expired")


@pytest.mark.parametrize("dialect", GUARDED)
async def test_the_authorization_file_was_changed(stage: Scene, dialect: str) -> None:
    async with served(stage, dialect):
        Path("run", NAME, "authorization").write_text("x" * 43)
        await expect(stage, f"{dialect}-authorization")


@pytest.mark.parametrize("dialect", EVERY)
async def test_the_running_agent_serves_another_dialect_or_port(stage: Scene, dialect: str) -> None:
    """Not by well-known paths, because it has no default; or in another dialect."""
    async with realm(stage, dialect) as cloud:
        other = {"dialects": [dialect], "port": free_port()} if not DIALECTS[dialect].named else {"dialects": [_other(dialect)]}
        if "port" not in other and not DIALECTS[_other(dialect)].named:
            other["default"] = True
        async with stage.agent(stage.configuration(provider=cloud.provider, serve=other)):
            stage.configure(configured(stage, cloud))
            await expect(stage, f"{dialect}-otherwise")


@pytest.mark.parametrize("dialect", EVERY)
async def test_another_program_that_echoes_requests_is_not_repeated(stage: Scene, dialect: str) -> None:
    async with served(stage, dialect):
        pass

    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=404, text=f"Cannot {request.method} {request.raw_path} {dict(request.headers)}")

    async with _listening(stage, echo):
        await expect(stage, f"{dialect}-stranger")


@pytest.mark.parametrize("dialect", EVERY)
async def test_a_credential_for_any_client_is_reported(stage: Scene, dialect: str) -> None:
    """It answers as the agent did, to everybody: its credential is real, and so is the danger."""
    async with served(stage, dialect), _recorded(stage, dialect) as body:
        pass

    async def give(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "PUT" or request.path.endswith("/security-credentials/"):
            return web.Response(text="reader")
        return web.Response(body=body[0], content_type="application/json", headers={"Metadata-Flavor": "Google"})

    async with _listening(stage, give):
        text = await expect(stage, f"{dialect}-unguarded")
    assert "too: the program is not a wi-agent" in text


@pytest.mark.parametrize("dialect", ["container", "ecs"])
async def test_a_silent_listener_may_be_an_agent(stage: Scene, monkeypatch: pytest.MonkeyPatch, dialect: str) -> None:
    async with served(stage, dialect):
        pass

    async def hang(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("agent.doctor.endpoint_requests.REQUEST_TIMEOUT_SECONDS", 0.2)
    async with _listening(stage, hang):
        text = await expect(stage, f"{dialect}-hanging")
    assert "the program is not a wi-agent" not in text


@pytest.mark.parametrize("dialect", ["container", "ecs"])
async def test_a_listener_without_http_is_another_program(stage: Scene, dialect: str) -> None:
    async with served(stage, dialect):
        pass

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        CONFIG.write_text(CONFIG.read_text().replace(str(stage.ports["endpoint"]), str(port)))
        stage.ports["endpoint"] = port
        await expect(stage, f"{dialect}-no-http")


@pytest.mark.parametrize("dialect", sorted(WIRED))
async def test_a_missing_address_of_the_cloud_is_reported(stage: Scene, dialect: str) -> None:
    async with realm(stage, dialect) as cloud:
        config = configured(stage, cloud, default=True)
        config["metadata"]["listen"].insert(0, f"{WIRED[dialect]}:80")
        stage.configure(config)
        await expect(stage, f"{dialect}-no-address")


def _other(dialect: str) -> str:
    """Another one of the same cloud; Google's has one."""
    return next((name for name in EVERY if name != dialect and DIALECTS[name].provider == DIALECTS[dialect].provider), dialect)


@asynccontextmanager
async def _listening(stage: Scene, answer: Answer) -> AsyncIterator[None]:
    """Somebody else, where the agent should be."""
    async with Site() as site:
        text = CONFIG.read_text()
        CONFIG.write_text(re.sub(rf"127\.0\.0\.1:{stage.ports['endpoint']}\b", f"127.0.0.1:{site.port}", text))
        stage.ports["endpoint"], site.answer = site.port, answer
        yield


@asynccontextmanager
async def _recorded(stage: Scene, dialect: str) -> AsyncIterator[list[bytes]]:
    """What the agent answers, as the doctor saw it."""
    from agent.doctor import endpoint, endpoint_verdict

    seen: list[bytes] = []
    whole = endpoint.judged

    def keep(case: Any, dialect: str, reply: Any, resource: str, *, refused: bool) -> Any:
        seen.append(reply.body)
        return whole(case, dialect, reply, resource, refused=refused)

    endpoint.judged = keep
    try:
        await stage.doctor()
        yield seen
    finally:
        endpoint.judged = endpoint_verdict.judged
