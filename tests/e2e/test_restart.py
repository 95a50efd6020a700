"""A restart takes over what lies on disk, and asks nobody; unless it is not exactly what this agent would have left."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon import Daemon, configuration, identity, issuer


def refreshes(daemon: Daemon, name: str, result: str = "") -> float:
    """Return the number of refreshes since the agent began: of one result, or of any."""
    wanted = f'wi_agent_refresh_total{{identity="{name}",result="{result}'
    return sum(count for series, count in daemon.metrics().items() if series.startswith(wanted))


def live(daemon: Daemon, name: str) -> Path:
    """The directory of the identity's generation."""
    return (daemon.folder / "identities" / name / "..data").resolve()


def reasons(daemon: Daemon) -> dict[str, str]:
    """Why each generation was refused."""
    return {line["identity"]: line["reason"] for line in daemon.log("generation.refused")}


def test_a_restart_adopts_what_is_whole_and_its_own_and_asks_no_source(daemon: Daemon) -> None:
    names = ("kept", "file", "settings", "byte", "expired", "manifest", "trusting")
    config: dict[str, Any] = configuration(*(identity(name) for name in names), issuer=issuer(lifetime={"min": "1s"}))
    by_name = {one["name"]: one for one in config["identities"]}
    by_name["expired"]["source"]["lifetime"] = "2s"
    by_name["trusting"]["sinks"][0]["adopt"] = False
    by_name["file"]["source"] = {"type": "file", "path": "./identities/kept/token"}
    daemon.start(config, wait=False)
    done = daemon.cli("wait", "--timeout", "20")
    assert done.returncode == 0, done.stderr
    before = {name: daemon.token(name)["jti"] for name in names}
    daemon.kill()

    by_name["file"]["source"]["path"] = "./gone"  # would be another digest
    by_name["settings"]["source"]["claims"] = {"team": "blue"}
    token = live(daemon, "byte") / "token"
    token.write_text(token.read_text()[:-1] + ("A" if token.read_text()[-1] != "A" else "B"))
    (live(daemon, "manifest") / "grant.json").write_text("{}")
    time.sleep(2.2)
    by_name["file"]["source"]["path"] = "./identities/kept/token"
    daemon.start(config)
    after = {name: daemon.token(name)["jti"] for name in names}
    assert {name for name in names if after[name] == before[name]} == {"kept", "file"}
    assert refreshes(daemon, "kept") == 0
    assert refreshes(daemon, "file", "success") == 0  # its file is looked at once, in case another subject was written there
    assert {line["identity"] for line in daemon.log("generation.adopted")} == {"kept", "file"}
    assert set(reasons(daemon)) >= {"settings", "byte", "manifest"}, reasons(daemon)
    assert daemon.token("settings")["team"] == "blue"
    daemon.stop()

    (daemon.folder / "identities/kept/token").rename(daemon.folder / "identities/kept/moved")  # not even the source's file is needed
    daemon.start()
    assert daemon.token("file")["jti"] == before["file"]
    assert (daemon.folder / "identities/kept/token").exists(), "the missing link is mended"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")
def test_what_somebody_else_owns_or_may_alter_is_not_adopted(daemon: Daemon) -> None:
    names = ("file", "directory", "mode", "kept")
    daemon.start(configuration(*(identity(name) for name in names)))
    before = {name: daemon.token(name)["jti"] for name in names}
    daemon.stop()
    os.chown(live(daemon, "file") / "token", 1000, -1)
    os.chown(live(daemon, "directory"), 1000, -1)
    (live(daemon, "mode") / "token").chmod(0o666)
    daemon.start()
    assert {name for name in names if daemon.token(name)["jti"] == before[name]} == {"kept"}
    assert set(reasons(daemon)) == {"file", "directory", "mode"}
    assert all((live(daemon, name) / "token").stat().st_uid == 0 for name in names)
