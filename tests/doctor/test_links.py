"""One broken link after the other, and what the doctor says of it, word for word.

`WI_GOLDEN=write pytest tests/doctor` writes the files anew; read the difference before it is committed.
"""

import os
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from agent.config.loading import load
from agent.config.model import identity_digest
from agent.model import Grant, Key
from agent.sinks.files import acl
from agent.sinks.files.sink import FilesSink
from tests.doctor.scene import CONFIG, GOLDEN, NAME, TOKEN, Scene, free_port
from tests.servers.cloud import ROLE
from tests.servers.sts import Trust, refuse
from tests.sinks.files.grants_and_sinks import FakeCredential

NO_ID = 0xFFFFFFFF
"""Of an ACL's entry without a user or group: https://man7.org/linux/man-pages/man5/acl.5.html"""


async def expect(stage: Scene, name: str, *, code: int = 3) -> str:
    """The doctor's words are those of the golden file, and its exit status is this."""
    found, text = await stage.doctor()
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("WI_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()
    assert found == code
    return text


async def test_a_sound_chain_is_ok_from_end_to_end(stage: Scene):
    async with stage.agent():
        await expect(stage, "sound", code=0)


async def test_a_sound_chain_with_the_agents_own_issuer_is_ok(stage: Scene):
    async with stage.agent(stage.embedded()):
        await expect(stage, "sound-own-issuer", code=0)


async def test_other_links_are_walked_without_an_agent(stage: Scene):
    async with stage.agent():
        pass
    await expect(stage, "no-agent")


async def test_an_agent_that_was_never_started_is_reported(stage: Scene):
    stage.configure(stage.embedded())
    await expect(stage, "never-started")


async def test_the_agent_does_not_know_the_identity(stage: Scene):
    async with stage.agent(stage.configuration()):
        later = stage.configuration()
        later["identities"].append({**later["identities"][0], "name": "new", "sinks": [{"type": "files", "directory": "./run/new"}]})
        stage.configure(later)
        code, text = await stage.doctor("new")
        assert code == 3
        assert "answers on ./agent.sock, and its configuration does not have this identity" in text
        assert NAME not in text.splitlines()


async def test_the_source_file_is_missing(stage: Scene):
    async with stage.agent():
        TOKEN.unlink()
        await expect(stage, "source-missing")


async def test_the_source_file_holds_no_jwt(stage: Scene):
    async with stage.agent():
        TOKEN.write_text("hunter2-is-not-a-token")
        assert "hunter2" not in await expect(stage, "source-no-jwt")


async def test_the_token_has_expired(stage: Scene):
    async with stage.agent():
        stage.present(now=datetime.now(UTC) - timedelta(hours=2))
        await expect(stage, "source-expired")


async def test_the_token_has_another_audience(stage: Scene):
    async with stage.agent():
        stage.present(aud="vault")
        await expect(stage, "token-audience")


async def test_the_clock_is_behind(stage: Scene):
    async with stage.agent():
        stage.present(now=datetime.now(UTC) + timedelta(minutes=5))
        await expect(stage, "token-from-the-future")


async def test_the_issuer_answers_with_an_error(stage: Scene):
    async with stage.agent():
        stage.cloud.issuer.up = False
        await expect(stage, "issuer-down")


async def test_the_issuer_is_not_there(stage: Scene):
    async with stage.agent():
        stage.present(iss=f"http://127.0.0.1:{free_port()}")
        await expect(stage, "issuer-gone")


async def test_the_host_of_the_own_issuer_is_down(stage: Scene):
    config = stage.embedded()
    config["issuer"]["url"] = f"http://127.0.0.1:{free_port()}"
    async with stage.agent(config, delivered=False):
        text = await expect(stage, "issuer-host-down")
        assert "the agent itself answers on http://<own-issuer>" in text


async def test_the_issuer_is_another(stage: Scene):
    async with stage.agent():
        stage.cloud.issuer.answer = lambda _: _json({"issuer": "https://issuer.example", "jwks_uri": "https://issuer.example/jwks"})
        await expect(stage, "issuer-another")


async def test_the_issuer_lacks_the_key(stage: Scene):
    async with stage.agent():
        stage.cloud.issuer.kid = "two"
        await expect(stage, "issuer-key")


async def test_the_issuer_redirects(stage: Scene):
    async with stage.agent():
        stage.cloud.issuer.answer = lambda _: _status(301)
        assert "answers 301, a redirect" in await expect(stage, "issuer-redirect")


async def test_an_issuer_that_only_the_cloud_reaches_is_a_warning(stage: Scene):
    usual = stage.cloud.issuer.answer

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        mine = "workload-identity-agent" in request.headers["User-Agent"]
        return web.Response(status=403) if mine else await usual(request)

    async with stage.agent():
        stage.cloud.issuer.answer = answer
        await expect(stage, "issuer-private", code=0)


async def test_the_role_trusts_another_subject(stage: Scene):
    async with stage.agent():
        stage.cloud.sts.trust[ROLE] = Trust(issuer=stage.cloud.issuer.url, subject="system:serviceaccount:demo:other")
        await expect(stage, "exchange-denied")


async def test_the_account_does_not_know_the_issuer(stage: Scene):
    stage.cloud.sts.trust[ROLE] = Trust(issuer="https://issuer.example", subject="x")
    async with stage.agent(delivered=False):
        await expect(stage, "exchange-no-provider")


async def test_the_cloud_throttles(stage: Scene):
    async with stage.agent():
        stage.cloud.sts.instead = refuse(400, "Throttling", "Rate exceeded")
        await expect(stage, "exchange-throttled")


async def test_the_cloud_is_not_there(stage: Scene):
    async with stage.agent():
        config = stage.configuration()
        config["identities"][0]["provider"]["endpoint"] = f"http://127.0.0.1:{free_port()}"
        stage.configure(config)
        await expect(stage, "exchange-unreachable")


async def test_the_cloud_does_not_answer(stage: Scene):
    async with stage.agent(stage.configuration(refresh={"timeout": "1s"})):
        stage.cloud.sts.hanging = True
        await expect(stage, "exchange-hanging")


async def test_a_file_was_altered(stage: Scene):
    async with stage.agent():
        with Path("run", NAME, "credentials").open("a") as file:
            file.write("#")
        await expect(stage, "sinks-altered")


async def test_a_mode_has_drifted(stage: Scene):
    async with stage.agent():
        Path("run", NAME, "token").chmod(0o600)
        await expect(stage, "sinks-mode", code=0)


@pytest.mark.parametrize(("place", "attribute"), [("", acl.DEFAULT), ("..data", acl.ACCESS), ("token", acl.ACCESS)])
async def test_a_posix_acl_is_a_warning(stage: Scene, place: str, attribute: str):
    """Mode, owner and group do not tell that user 4242 may read the file."""
    entries = [(0x01, 7, NO_ID), (0x02, 4, 4242), (0x04, 5, NO_ID), (0x10, 7, NO_ID), (0x20, 0, NO_ID)]
    async with stage.agent():
        os.setxattr(Path("run", NAME, place), attribute, struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries))
        code, text = await stage.doctor()
    assert code == 0
    assert f"  sinks    warning  ./run/{NAME}: {place if place == 'token' else 'the directory'} has a POSIX ACL, so other users" in text


async def test_the_links_are_gone(stage: Scene):
    async with stage.agent():
        Path("run", NAME, "token").unlink()
        await expect(stage, "sinks-links")


async def test_the_delivered_files_have_expired(stage: Scene):
    stage.configure()
    config = load(CONFIG, os.environ)
    digest, now = identity_digest(config.identities[0], config), datetime.now(UTC)
    credential = FakeCredential(issued_at=now - timedelta(hours=2), expires_at=now - timedelta(hours=1))
    toolbox = stage.cloud.toolbox
    sink = FilesSink(config.identities[0].sinks[0], NAME, digest, toolbox)
    grant = Grant(key=Key(NAME), digest=digest, token=stage.cloud.issuer.token(), credential=credential)
    await sink.write(grant)
    await sink.close()
    await expect(stage, "sinks-expired")


async def test_the_cloud_refused_the_agent_and_accepts_the_doctor(stage: Scene):
    trust = stage.cloud.sts.trust[ROLE]
    stage.cloud.sts.trust[ROLE] = Trust(issuer=trust.issuer, subject="system:serviceaccount:demo:other")
    async with stage.agent(delivered=False):
        stage.cloud.sts.trust[ROLE] = trust
        await expect(stage, "endpoint-not-ready")


async def test_the_authorization_is_another(stage: Scene):
    async with stage.agent():
        Path("run", NAME, "authorization").write_text("x" * 43)
        await expect(stage, "endpoint-authorization")


async def test_the_authorization_is_missing(stage: Scene):
    async with stage.agent():
        Path("run", NAME, "authorization").unlink()
        await expect(stage, "endpoint-no-authorization")


async def test_the_endpoint_is_elsewhere(stage: Scene):
    async with stage.agent():
        text = CONFIG.read_text().replace(str(stage.ports["endpoint"]), str(free_port()))
        CONFIG.write_text(text)
        await expect(stage, "endpoint-elsewhere")


async def test_variables_that_take_precedence_are_reported(stage: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/other")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks.amazonaws.com/serviceaccount/token")
    async with stage.agent():
        await expect(stage, "endpoint-irsa", code=0)


async def test_the_authorization_of_the_environment_is_sent(stage: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WI_AUTHORIZATION", "canary-of-the-environment-0123456789")
    config = stage.configuration(serve={"dialects": ["container"], "authorization": "${WI_AUTHORIZATION}"})
    async with stage.agent(config):
        code, text = await stage.doctor()
        assert (code, "canary" in text) == (0, False)
        monkeypatch.setenv("WI_AUTHORIZATION", "canary-of-another-pod-0123456789")
        code, text = await stage.doctor()
        assert (code, "canary" in text) == (3, False)
        assert "start both containers with the same value" in text


async def _json(document: object) -> web.StreamResponse:
    return web.json_response(document)


async def _status(status: int) -> web.StreamResponse:
    return web.Response(status=status, headers={"Location": "https://elsewhere.example"})
