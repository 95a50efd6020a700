"""What a supervisor does to the agent: SIGTERM once and twice, SIGINT, SIGUSR1; how it ends, and what it leaves."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon import COMMAND, STOP, Daemon, configuration, identity, issuer, until
from tests.processor import own_time


@pytest.fixture
def silence() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_sigusr1_renews_all_and_sigterm_ends_it_in_time_even_while_others_wait(daemon: Daemon, silence: str) -> None:
    hung = identity("hung", required=False, sinks=[], serve={"dialects": ["container"]})
    hung["provider"] = {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/x", "region": "eu-west-1", "endpoint": silence}
    hopeless = identity("hopeless", source={"type": "file", "path": "./never"})
    daemon.start(configuration(identity("one"), identity("two"), hung, hopeless), wait=False)
    until(lambda: (daemon.folder / "agent.sock").exists() and daemon.log("agent.started"))
    until(lambda: all(daemon.status()[name]["delivered"] for name in ("one", "two")))
    before = {name: daemon.token(name)["jti"] for name in ("one", "two")}
    daemon.signal(signal.SIGUSR1)
    until(lambda: all(daemon.token(name)["jti"] != jti for name, jti in before.items()))
    waiting = subprocess.Popen(
        [*COMMAND, "wait", "--timeout", "30", "-c", str(daemon.file)], cwd=daemon.folder, env=daemon.environment, stderr=subprocess.PIPE
    )
    with socket.create_connection(("127.0.0.1", int(daemon.address("admin").rpartition(":")[2]))):  # and an idle connection
        time.sleep(0.7)
        assert waiting.poll() is None, "one required identity is not delivered"
        daemon.stop(within=STOP)
    waiting.terminate()
    waiting.communicate(timeout=10)
    assert not (daemon.folder / "agent.sock").exists()
    assert {path.name for path in (daemon.folder / "identities" / "one").iterdir() if path.is_symlink()} >= {"token", "config", "..data"}
    assert all(daemon.token(name)["exp"] > time.time() for name in before), "left valid"
    assert [line["event"] for line in daemon.log()][-2:] == ["agent.stopping", "agent.stopped"]


def test_after_sigterm_it_serves_and_rotates_for_the_delay_and_a_second_one_ends_it_now(daemon: Daemon) -> None:
    daemon.start(configuration(identity("one", "2s"), issuer=issuer(lifetime={"min": "1s"}), shutdown={"delay": "3s"}))
    daemon.signal(signal.SIGTERM)
    assert daemon.process
    pid, before = daemon.process.pid, daemon.token("one")["jti"]
    asked, fair = time.monotonic(), own_time(pid)
    until(lambda: daemon.token("one")["jti"] != before)
    assert daemon.admin("/readyz") == (200, "ok\n"), "the delay is not over"
    until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), every=0.01)
    assert time.monotonic() - asked >= 3.0
    assert own_time(pid) - fair <= 5.0
    assert daemon.process.wait() == 0
    daemon.start(configuration(identity("one"), shutdown={"delay": "1h"}))
    daemon.signal(signal.SIGINT)
    time.sleep(0.5)
    assert daemon.admin("/healthz") == (200, "ok\n")
    daemon.stop(within=STOP)


def test_a_second_agent_is_refused_and_harms_nothing_and_a_dead_ones_socket_is_replaced(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start(configuration(identity("one")))
    jti, taken = daemon.token("one")["jti"], daemon.address("admin")
    other = Daemon(tmp_path / "other")
    other.folder.mkdir()
    elsewhere = {"issuer": None, "control": {"socket": "./agent.sock"}}

    def refused(**more: object) -> str:
        other.configure({key: value for key, value in configuration(**{**elsewhere, **more}).items() if value is not None})
        done = other.cli("run")
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    socket_path = str(daemon.folder / "agent.sock")
    assert f"another agent answers on {socket_path}" in refused(control={"socket": socket_path})
    assert "another agent uses it" in refused(issuer={**configuration()["issuer"], "state": str(daemon.folder / "issuer")})
    assert f"cannot listen on {taken} for admin: Address already in use" in refused(admin={"listen": [taken]})
    (other.folder / "file").write_text("mine")
    assert "it is not a socket" in refused(control={"socket": "./file"})
    assert (other.folder / "file").read_text() == "mine"
    assert "cannot listen on unix:file/agent.sock for control" in refused(control={"socket": "file/agent.sock"})
    assert daemon.status()["one"]["state"] == "fresh", "the first one's socket is still its own"
    (other.folder / "token").write_text((daemon.folder / "identities/one/token").read_text())
    same = identity("same", source={"type": "file", "path": "./token"})
    same["sinks"] = [{"type": "files", "directory": str(daemon.folder / "identities/one")}]
    config = configuration(same)
    del config["issuer"]
    try:
        other.start(config, wait=False)
        failure = until(lambda: (other.folder / "agent.sock").exists() and other.status()["same"]["sinks"][0]["failure"])
        assert (failure["result"], daemon.token("one")["jti"]) == ("rejected", jti)
        assert "another agent or identity writes to" in failure["message"]
        assert other.admin("/readyz")[0] == 503
        other.stop()
    finally:
        other.kill()
    daemon.kill()
    assert (daemon.folder / "agent.sock").is_socket(), "a left-over"
    daemon.start()
    assert daemon.token("one")["jti"] == jti
