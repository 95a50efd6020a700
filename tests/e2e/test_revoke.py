"""What the operator ends from the command line and in the file, on a whole agent: it is gone, and no restart brings it back."""

import json
import os
import stat

from tests.e2e.daemon import Daemon, configuration, identity, until


def there(daemon: Daemon, name: str) -> bool:
    """Whether the workload finds a token."""
    return (daemon.folder / "identities" / name / "token").exists()


def shown(daemon: Daemon, name: str) -> dict:
    """The identity in `status --json`."""
    found = json.loads(daemon.cli("status", "--json").stdout)["identities"]
    return next(one for one in found if one["name"] == name)


def test_revoked_identity_stays_withdrawn_until_it_is_renewed_by_name(daemon: Daemon) -> None:
    daemon.start(configuration(identity("one", required=False), identity("two")))
    done = daemon.cli("revoke", "one")
    assert (done.returncode, "wi-agent renew one" in done.stdout) == (0, True), done.stderr
    assert (there(daemon, "one"), there(daemon, "two")) == (False, True)
    assert shown(daemon, "one")["revoked"]["by"] == f"uid {os.geteuid()}"
    status = daemon.cli("status")
    assert status.returncode == 3
    assert f"one: revoked by uid {os.geteuid()} at 20" in status.stdout
    assert "→ wi-agent renew one" in status.stdout
    assert daemon.cli("renew", "--all").returncode == 3
    assert not there(daemon, "one")
    daemon.kill()
    daemon.start()
    assert shown(daemon, "one")["state"] == "missing"
    assert not there(daemon, "one")
    done = daemon.cli("renew", "one")
    assert (done.returncode, done.stdout) == (0, "one: renewed\n"), done.stderr
    until(lambda: there(daemon, "one"))
    assert shown(daemon, "one")["revoked"] is None


def test_once_does_not_deliver_what_was_revoked(daemon: Daemon) -> None:
    daemon.start(configuration(identity("one", required=False)))
    assert daemon.cli("revoke", "one").returncode == 0
    daemon.kill()
    done = daemon.cli("once", "--timeout", "1")
    assert (done.returncode, "one: revoked by uid" in done.stderr) == (3, True), done.stderr
    assert not there(daemon, "one")


def test_revoke_says_what_it_cannot_do(daemon: Daemon) -> None:
    assert daemon.cli("revoke", "one").returncode == 4
    daemon.start(configuration(identity("one")))
    done = daemon.cli("revoke", "other")
    assert (done.returncode, done.stderr) == (3, "wi-agent revoke: there is no identity other\n")
    assert there(daemon, "one")


def test_identity_removed_while_the_agent_is_down_is_withdrawn_at_its_start(daemon: Daemon) -> None:
    daemon.start(configuration(identity("gone"), identity("stays"), identity("back"), identity("moved")))
    ledger = daemon.folder / "agent.sock.ledger"
    assert stat.S_IMODE(ledger.stat().st_mode) == 0o600
    assert "eyJ" not in ledger.read_text()
    daemon.kill()
    (daemon.folder / "identities" / "foreign").mkdir()
    moved = identity("moved") | {"sinks": [{"type": "files", "directory": "./identities/elsewhere"}]}
    daemon.start(configuration(identity("stays"), identity("back"), moved))
    until(lambda: not (daemon.folder / "identities" / "gone").exists(), within=5)
    until(lambda: not (daemon.folder / "identities" / "moved").exists(), within=15)
    assert (there(daemon, "stays"), there(daemon, "back"), there(daemon, "elsewhere")) == (True, True, True)
    assert {entry["identity"] for entry in json.loads(ledger.read_text())["delivered"]} >= {"stays", "back", "moved"}
    until(lambda: "gone" not in ledger.read_text(), within=15)
    assert (daemon.folder / "identities" / "foreign").exists()


def test_place_that_another_identity_has_now_is_cleared_before_that_one_starts(daemon: Daemon) -> None:
    daemon.start(configuration(identity("former")))
    daemon.kill()
    heir = identity("heir", required=False) | {"source": {"type": "file", "path": "./none"}}
    heir["sinks"] = [{"type": "files", "directory": "./identities/former", "adopt": False}]
    daemon.start(configuration(heir))
    assert not there(daemon, "former")


def test_forged_ledger_removes_nothing(daemon: Daemon) -> None:
    other = daemon.folder / "other"
    other.mkdir()
    (other / "..2026_01_01_00_00_00.aa").mkdir()
    (other / "..data").symlink_to("..2026_01_01_00_00_00.aa")
    (other / "..data" / "token").write_text("x")
    daemon.start(configuration(identity("one")))
    daemon.kill()
    ledger = daemon.folder / "agent.sock.ledger"
    forged = [{"identity": "x", "kind": kind, "location": place} for kind, place in (("files", str(other)), ("files", "x\0"), ("new", "/"))]
    forged.append({"identity": "other", "kind": "files", "location": str(daemon.folder / "identities" / "one")})
    ledger.write_text(json.dumps({"version": 1, "delivered": forged}))
    daemon.start()
    until(lambda: daemon.log("orphan.not_withdrawn"))
    assert (other / "..data" / "token").exists()
    assert there(daemon, "one")
