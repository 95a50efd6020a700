"""What goes wrong for one identity: said with place and remedy, kept from the others, and healed by itself."""

import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import yaml

from tests.e2e.daemon import Daemon, configuration, identity, issuer, until


def file_source(path: str | Path) -> dict[str, Any]:
    return {"type": "file", "path": str(path)}


def a_token(seconds: float, audience: str = "demo") -> str:
    now = datetime.now(UTC)
    claims = {"iss": "https://k8s", "sub": "x", "aud": audience, "iat": now - timedelta(hours=1), "exp": now + timedelta(seconds=seconds)}
    return jwt.encode(claims, "k" * 32)


def test_no_fault_of_one_identity_keeps_another_from_its_rotation(daemon: Daemon) -> None:
    folder = daemon.folder
    (folder / "empty").touch()
    (folder / "prose").write_text("this is no token")
    (folder / "binary").write_bytes(b"\xff\x00")
    (folder / "expired").write_text(a_token(-60))
    (folder / "foreign").write_text(a_token(600, "somebody-else"))
    with (folder / "gigabyte").open("wb") as file:
        file.truncate(1 << 30)
    (folder / "folder").mkdir()
    expected = {
        "missing": ("not_ready", "there is no token file"),
        "empty": ("not_ready", "is empty"),
        "prose": ("rejected", "not a JWT"),
        "binary": ("rejected", "not a JWT"),
        "expired": ("rejected", "expired at"),
        "foreign": ("rejected", "is for somebody-else, not for demo"),
        "gigabyte": ("rejected", "is longer than 65536 bytes"),
        "folder": ("rejected", "is not a regular file"),
    }
    bad = [identity(name, source=file_source(folder / name), required=False) for name in expected]
    with socket.create_server(("127.0.0.1", 0)) as silence:
        provider = {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/x", "region": "eu-west-1"}
        provider["endpoint"] = f"http://127.0.0.1:{silence.getsockname()[1]}"
        hung = identity("hung", provider=provider, required=False, refresh={"timeout": "1s"})
        blocked = identity("blocked", required=False)
        (folder / "identities/blocked/token").mkdir(parents=True)
        daemon.start(configuration(*bad, hung, blocked, identity("good", "4s"), issuer=issuer(lifetime={"min": "1s"})))
        seen: dict[str, float] = {}
        last = time.monotonic() + 10
        while len(seen) < 4:
            assert time.monotonic() < last, seen
            claims = daemon.token("good")
            seen.setdefault(claims["jti"], claims["iat"])
            assert claims["exp"] > time.time(), "never expired on disk"
            time.sleep(0.05)
        status = daemon.status()
        for name, (result, message) in expected.items():
            failure = status[name]["failure"]
            assert (failure["result"], status[name]["state"]) == (result, "missing"), failure
            assert message in failure["message"], failure
            assert name in failure["message"], "which one"
            assert failure["remedy"], "and what to do"
        assert status["hung"]["failure"]["result"] == "unavailable", status["hung"]
        assert f"no answer from 127.0.0.1:{silence.getsockname()[1]} within 1 s" in status["hung"]["failure"]["message"]
        assert "is a directory, but a link must take its place" in status["blocked"]["sinks"][0]["failure"]["message"]
        assert status["blocked"]["failure"] is None, "no second fetch for a sink's sake"
        assert daemon.metrics()['wi_agent_refresh_total{identity="blocked",result="success"}'] == 1
        assert daemon.metrics()['wi_agent_tokens{state="missing"}'] == len(expected) + 2
        assert daemon.admin("/healthz") == (200, "ok\n")

        (folder / "new").write_text(a_token(3600))
        (folder / "new").replace(folder / "missing")
        (folder / "empty").write_text(a_token(3600))
        (folder / "identities/blocked/token").rmdir()
        until(lambda: all(daemon.status()[name]["state"] == "fresh" for name in ("missing", "empty", "blocked")), within=25)
        daemon.stop()


def test_a_configuration_that_cannot_be_used_ends_it_with_2_and_says_where(daemon: Daemon) -> None:
    (daemon.folder / "file").touch()

    def refused(config: dict[str, Any] | str) -> str:
        if isinstance(config, str):
            daemon.file.write_text(config)
        else:
            daemon.configure(config)
        done = daemon.cli("run")
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert all(line.startswith(f"{daemon.file}") for line in done.stderr.splitlines()), done.stderr
        return done.stderr

    assert "config.yaml:2:" in refused("identities:\n - [}\n")
    together = configuration(
        identity("short", "5s"),
        identity("twin", sinks=[{"type": "files", "directory": "./identities/short"}]),
        identity("blocked", sinks=[{"type": "files", "directory": "./file/x"}]),
        identity("inner", sinks=[{"type": "files", "directory": "./..data/x"}]),
        identity("claims", source={"type": "issuer", "subject": "x", "claims": {"sub": "y"}}),
        identity("mode", sinks=[{"type": "files", "directory": "./identities/mode", "mode": 0o640}]),
    )
    said = refused(yaml.safe_dump(together).replace("mode: 416", "mode: 0640"))
    for part in (
        "identities[0].source.lifetime: the issuer does not grant 5s",
        "identities[1].sinks[0].directory: is another's directory",
        "identities[2].sinks[0].directory:",
        "file exists and is not a directory",
        "identities[3].sinks[0].directory: is below `..data`",
        "identities[4].source.claims.sub: the agent sets this claim itself",
        "identities[5].sinks[0].mode:",
        '"0640"',
    ):
        assert part in said, said
    assert len(said.splitlines()) == 6, said
    daemon.file.unlink()
    missing = daemon.cli("run")
    assert (missing.returncode, "the file does not exist" in missing.stderr) == (2, True)
