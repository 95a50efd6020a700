"""A changed configuration is taken up while the agent runs, and only what changed feels it; a bad one changes nothing."""

import os
import signal
from pathlib import Path
from typing import Any

import yaml

from bench.subjects import free_port
from tests.e2e.daemon import Daemon, configuration, fetch, identity, until

SUCCESSFUL = "wi_agent_config_last_reload_successful"


def reloads(daemon: Daemon) -> int:
    """How often a configuration was read again, whatever came of it."""
    return len(daemon.log("config.reloaded")) + len(daemon.log("config.refused"))


def reload(daemon: Daemon, config: dict[str, Any] | str) -> None:
    """As an operator does it: write the file, send SIGHUP."""
    before = reloads(daemon)
    daemon.file.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    daemon.signal(signal.SIGHUP)
    until(lambda: reloads(daemon) > before)


def test_a_reload_touches_only_what_changed_and_a_bad_one_nothing(daemon: Daemon) -> None:
    names = ("stays", "goes", "changes", "moves")
    config = configuration(*(identity(name) for name in names))
    daemon.start(config)
    place = daemon.folder / "identities"
    before = {name: daemon.token(name)["jti"] for name in names}
    assert 'wi_agent_identity_info{identity="goes",provider="generic",source="issuer"}' in daemon.metrics()

    stays, _, changes, moves = config["identities"]
    late = {"type": "file", "path": "./late"}
    changes["source"], moves["source"] = late, late
    moves["sinks"] = [{"type": "files", "directory": "./identities/moved"}]
    reload(daemon, config | {"identities": [stays, changes, moves, identity("new")]})
    until(lambda: daemon.status()["new"]["delivered"] and daemon.status()["changes"]["failure"] and daemon.status()["moves"]["failure"])
    assert not (place / "goes").exists(), "withdrawn at once"
    assert not [series for series in daemon.metrics() if "goes" in series]
    assert "goes" not in daemon.status()
    assert daemon.token("stays")["jti"] == before["stays"]
    assert daemon.token("changes")["jti"] == before["changes"], "the old one stays until there is a new one"
    assert daemon.token("moves")["jti"] == before["moves"], "where it was, too"
    assert (daemon.admin("/readyz/changes")[0], daemon.admin("/readyz/goes")[0]) == (200, 404)

    (daemon.folder / "late").write_text((place / "stays" / "token").read_text())
    assert daemon.cli("renew", "changes", "moves").returncode == 0
    until(lambda: daemon.token("changes")["jti"] == before["stays"])
    until(lambda: not (place / "moves").exists())
    assert daemon.token("moved")["jti"] == before["stays"], "there before the old directory went"
    assert not [series for series in daemon.metrics() if 'sink="files:./identities/moves"' in series]

    good = config | {"identities": [stays, changes, moves]}
    kept = {name: daemon.token(name)["jti"] for name in ("stays", "changes", "moved")}
    port = daemon.address("admin").rpartition(":")[2]
    served = identity("served", sinks=[], serve={"dialects": ["container"]})
    served["provider"] = {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/x", "region": "eu-west-1"}
    for bad, said in (
        ("identities: [", "YAML"),
        (good | {"identitys": []}, "identitys: unknown key"),
        (good | {"admin": {"listen": [f"127.0.0.1:{int(port) % 60000 + 1024}"]}}, "changes of admin.listen need a restart"),
        (good | {"issuer": good["issuer"] | {"url": "http://127.0.0.1:9483"}}, "changes of issuer need a restart"),
        (good | {"control": {"socket": "./other.sock"}}, "changes of control.socket need a restart"),
        (good | {"identities": [*good["identities"], served]}, "changes of metadata, closed until now, need a restart"),
    ):
        reload(daemon, bad)
        refused = daemon.log("config.refused")[-1]
        assert said in " ".join(refused["errors"]), refused
        shown = daemon.cli("status", "--socket", "agent.sock").stdout
        assert "the agent refused the changed configuration file and keeps the one before it:" in shown, shown
        assert said in shown
        assert daemon.metrics()[SUCCESSFUL] == 0
        assert {name: daemon.token(name)["jti"] for name in kept} == kept
        assert daemon.admin("/readyz") == (200, "ok\n")
    assert "new" in daemon.status(), "nothing of a refused file is taken up"
    reload(daemon, good)
    assert daemon.metrics()[SUCCESSFUL] == 1
    assert "new" not in daemon.status()
    assert {name: daemon.token(name)["jti"] for name in kept} == kept


def test_a_file_that_changes_is_read_again_also_where_a_configmap_is_swapped(daemon: Daemon) -> None:
    def revision(number: int, *names: str) -> Path:
        folder = daemon.folder / f"..2026_{number}"
        folder.mkdir()
        (folder / "config.yaml").write_text(yaml.safe_dump(configuration(*(identity(name) for name in names))))
        return folder

    data = daemon.folder / "..data"
    data.symlink_to(revision(1, "one").name)
    daemon.file.symlink_to("..data/config.yaml")
    daemon.start()
    jti = daemon.token("one")["jti"]
    new = daemon.folder / "..data_tmp"
    new.symlink_to(revision(2, "one", "two").name)
    os.replace(new, data)
    until((daemon.folder / "identities/two/token").exists, within=10)
    daemon.configure(configuration(identity("one")))
    until(lambda: not (daemon.folder / "identities/two").exists(), within=10)
    assert daemon.token("one")["jti"] == jti
    until(lambda: len(daemon.log("config.reloaded")) == 2)


def test_what_was_taken_away_can_be_put_back_with_its_port_and_the_endpoint_with_it(daemon: Daemon) -> None:
    """The refusal says that the change can be taken back. Its listeners have stayed open."""
    served = identity("served", serve={"dialects": ["imds"], "port": free_port()})
    served["provider"] = {
        "type": "aws",
        "roleArn": "arn:aws:iam::123456789012:role/x",
        "region": "eu-west-1",
        "endpoint": "http://127.0.0.1:9",
    }
    other, port = identity("other"), served["serve"]["port"]
    config = configuration(other, served)
    daemon.start(config, wait=False)
    until(lambda: daemon.log("agent.started"))
    token = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    assert fetch(f"http://127.0.0.1:{port}/latest/api/token", "PUT", **token)[0] == 200
    reload(daemon, config | {"identities": [other]})
    assert fetch(f"http://127.0.0.1:{port}/latest/api/token", "PUT", **token)[0] == 404
    moved = [other, served | {"serve": {"dialects": ["imds"], "port": free_port()}}]
    for wanted in (moved, [other, served | {"name": "another"}]):
        reload(daemon, config | {"identities": wanted})
        assert daemon.log("config.refused")[-1]["errors"] == ["changes of serve.port need a restart"], "nobody listens there for it"
    refused = len(daemon.log("config.refused"))
    reload(daemon, config)
    assert daemon.log("config.refused")[refused:] == []
    assert fetch(f"http://127.0.0.1:{port}/latest/api/token", "PUT", **token)[0] == 200


def test_how_long_it_lives_on_after_sigterm_is_what_was_read_last(daemon: Daemon) -> None:
    config = configuration(identity("one"), shutdown={"delay": "1h"})
    daemon.start(config)
    reload(daemon, config | {"shutdown": {"delay": "0s"}})
    daemon.stop()
