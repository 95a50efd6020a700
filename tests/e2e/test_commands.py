"""Every command as it is typed: what it prints where, and its exit status."""

import json
import os
import shutil
import stat
import subprocess
import time
from typing import Any

import jwt
import pytest
import yaml

from agent import __version__
from tests.e2e.daemon import COMMAND, Daemon, configuration, environment, fetch, identity, until


def aws(name: str, **more: Any) -> dict[str, Any]:
    provider = {"type": "aws", "roleArn": f"arn:aws:iam::123456789012:role/{name}", "region": "eu-west-1", "exchange": False}
    return identity(name, provider=provider, **more)


def test_the_commands_that_ask_say_how_it_stands_and_exit_accordingly(daemon: Daemon) -> None:
    broken = identity("broken", source={"type": "file", "path": "./late"}, required=False)
    daemon.start(configuration(identity("good"), broken, aws("cloud")))

    status = daemon.cli("status")
    assert status.returncode == 3, "one is not fresh"
    header, *rows = status.stdout.splitlines()
    assert header.split() == ["IDENTITY", "STATE", "AGE", "EXPIRES", "IN", "NEXT", "REFRESH", "SINKS", "SERVED"]
    assert [row.split()[:2] for row in rows[:3]] == [["broken", "missing"], ["cloud", "fresh"], ["good", "fresh"]]
    assert "there is no token file late" in status.stdout, "what is wrong"
    assert "→ check the mount and source.path" in status.stdout, "and what to do"
    assert status.stderr == ""
    found = json.loads(daemon.cli("status", "--json").stdout)
    assert (found["version"], found["ready"]) == (__version__, True)
    watching = subprocess.Popen(
        [*COMMAND, "status", "--watch", "-c", str(daemon.file)], cwd=daemon.folder, env=daemon.environment, stdout=subprocess.PIPE
    )
    assert watching.stdout
    assert b"IDENTITY" in watching.stdout.readline()
    watching.stdout.close()
    assert watching.wait(5) == 141, "a closed pipe ends it without a word"

    jti = daemon.token("good")["jti"]
    renewed = daemon.cli("renew", "good")
    assert (renewed.returncode, renewed.stdout) == (0, "good: renewed\n")
    until(lambda: daemon.token("good")["jti"] != jti)
    again = daemon.cli("renew", "--all")
    assert again.returncode == 3
    assert sorted(again.stdout.splitlines())[1:] == ["cloud: renewed", "good: not renewed: the last renewal was less than 10 s ago"]
    assert again.stdout.splitlines()[1].startswith("broken: failed: there is no token file late (check the mount")
    unknown = daemon.cli("renew", "goood")
    assert (unknown.returncode, unknown.stderr) == (3, "wi-agent renew: there is no identity goood\n")
    assert daemon.cli("renew").returncode == daemon.cli("renew", "good", "--all").returncode == 2

    assert daemon.cli("wait", "--timeout", "5").returncode == 0
    config = yaml.safe_load(daemon.file.read_text())
    config["identities"][1]["required"] = True
    daemon.configure(config)
    until(lambda: daemon.log("config.reloaded"), within=10)
    began = time.monotonic()
    waited = daemon.cli("wait", "--timeout", "0.3")
    assert waited.returncode == 3
    assert "there is no token file late" in waited.stderr
    assert time.monotonic() - began < 20
    assert daemon.admin("/readyz") == (503, "broken: missing, not delivered everywhere\n")
    (daemon.folder / "late").write_text((daemon.folder / "identities/good/token").read_text())
    assert daemon.cli("wait", "--timeout", "20").returncode == 0, "it heals without being asked"
    assert daemon.cli("status").returncode == 0

    assert stat.S_IMODE((daemon.folder / "agent.sock").stat().st_mode) == 0o600
    for path, expected in (
        ("/healthz", 200),
        ("/readyz/good", 200),
        ("/readyz/nobody", 404),
        ("/", 404),
        ("/status", 404),
        ("/debug", 404),
    ):
        assert daemon.admin(path)[0] == expected, path
    assert fetch(f"http://{daemon.address('admin')}/metrics", "POST")[0] == 405


def test_the_process_lets_nobody_look_into_it(daemon: Daemon) -> None:
    if os.geteuid() == 0:  # whom nothing is forbidden until one capability is gone
        if not shutil.which("setpriv"):
            pytest.skip("needs setpriv, of Debian's package util-linux")
        daemon.prefix = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
    daemon.start(configuration(identity("one")))
    assert daemon.process

    def look(pid: int) -> bool:
        script = f"import os; os.readlink('/proc/{pid}/cwd'); open('/proc/{pid}/environ').close()"
        return subprocess.run([*daemon.prefix, COMMAND[0], "-c", script], stderr=subprocess.DEVNULL, check=False).returncode == 0

    with subprocess.Popen([*daemon.prefix, "sleep", "30"]) as other:
        until(lambda: look(other.pid))
        other.kill()
    assert not look(daemon.process.pid)
    with open(f"/proc/{daemon.process.pid}/limits") as limits:
        assert next(line for line in limits if line.startswith("Max core file size")).split()[4:6] == ["0", "0"]


def test_once_delivers_everything_and_ends(daemon: Daemon) -> None:
    daemon.configure(configuration(identity("one"), aws("two")))
    done = daemon.cli("once")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    jti = daemon.token("one")["jti"]
    assert not (daemon.folder / "agent.sock").exists()
    assert daemon.cli("once").returncode == 0
    assert daemon.token("one")["jti"] == jti, "what is good is left alone"
    daemon.configure(configuration(identity("one"), identity("late", source={"type": "file", "path": "./late"})))
    began = time.monotonic()
    failed = daemon.cli("once", "--timeout", "0.5")
    assert failed.returncode == 3
    assert time.monotonic() - began < 20, "not the usual minute"
    assert failed.stderr.splitlines()[-1] == "not delivered: late: there is no token file late (check the mount and source.path)"
    daemon.configure(configuration(identity("One")))
    assert daemon.cli("once").returncode == 2


def test_commands_that_need_no_agent(daemon: Daemon) -> None:
    daemon.configure(configuration(identity("one"), aws("two")))
    good = daemon.cli("check")
    assert (good.returncode, good.stdout) == (0, f"{daemon.file}: good, 2 identities\n")
    assert "clouds trust https issuers only" in good.stderr, "a warning"
    schema = daemon.cli("schema")
    assert schema.returncode == 0
    assert json.loads(schema.stdout)["$schema"] == "https://json-schema.org/draft/2020-12/schema"

    directory = daemon.folder / "identities/two"
    variables = daemon.cli("env", "two")
    assert variables.returncode == 0
    assert f"export AWS_WEB_IDENTITY_TOKEN_FILE={directory}/token" in variables.stdout
    dotenv = daemon.cli("env", "two", "--via", "files", "--format", "dotenv").stdout
    assert "AWS_ROLE_ARN=" in dotenv
    listed = yaml.safe_load(daemon.cli("env", "two", "--format", "yaml").stdout)
    assert {"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": f"{directory}/token"} in listed
    for arguments in (("one",), ("nobody",), ("two", "--via", "endpoint")):
        refused = daemon.cli("env", *arguments)
        assert (refused.returncode, refused.stdout) == (2, ""), arguments
        assert "Traceback" not in refused.stderr

    exported = daemon.cli("issuer", "export", "./site")
    assert exported.returncode == 0, exported.stderr
    document = json.loads((daemon.folder / "site/.well-known/openid-configuration").read_text())
    assert document["issuer"] == "http://127.0.0.1:9482"
    keys = jwt.PyJWKSet.from_json((daemon.folder / "site/jwks").read_text())
    daemon.start()
    token = (daemon.folder / "identities/one/token").read_text()
    assert jwt.decode(token, keys[jwt.get_unverified_header(token)["kid"]].key, algorithms=["ES256"], audience="demo")
    assert daemon.cli("issuer", "export", "./site").returncode == 0, "beside a running agent, too"
    assert daemon.cli("issuer", "export", "./config.yaml").returncode == 2


def test_where_no_agent_answers_every_client_exits_4(daemon: Daemon) -> None:
    daemon.configure(configuration(identity("one")))
    for arguments in (("status",), ("status", "--json"), ("renew", "one"), ("wait", "--timeout", "0.2")):
        done = daemon.cli(*arguments)
        assert (done.returncode, done.stdout) == (4, ""), arguments
        assert "the socket ./agent.sock does not exist" in done.stderr
    (daemon.folder / "agent.sock").touch()
    assert daemon.cli("status").returncode == 4
    named = subprocess.run([*COMMAND, "--socket", "./x.sock", "status"], env=environment(daemon.folder), capture_output=True, check=False)
    assert (named.returncode, b"./x.sock" in named.stderr) == (4, True)
    version = subprocess.run([*COMMAND, "--version"], env=environment(daemon.folder), capture_output=True, text=True, check=False)
    assert (version.returncode, version.stdout) == (0, f"wi-agent {__version__}\n")
    assert subprocess.run([*COMMAND], env=environment(daemon.folder), capture_output=True, check=False).returncode == 2
