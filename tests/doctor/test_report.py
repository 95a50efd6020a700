"""The doctor looks and does not touch, asks once, and says what it says on standard output."""

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.clock import WallClock
from agent.doctor.agent import _refused
from agent.doctor.case import View
from agent.doctor.walk import _look
from agent.errors import Rejected, Unavailable
from agent.model import Key
from agent.record import Observation
from tests.doctor.scene import CONFIG, NAME, TOKEN, Scene, free_port, tree


async def test_doctor_changes_no_file_with_or_without_an_agent(stage: Scene):
    async with stage.agent(stage.embedded()):
        before = tree()
        await stage.doctor()
        assert tree() == before
    before = tree()
    await stage.doctor()
    assert tree() == before


async def test_doctor_creates_no_file_before_the_first_start(stage: Scene):
    stage.configure(stage.embedded())
    before = tree()
    await stage.doctor()
    assert tree() == before


async def test_doctor_does_not_repair_the_mode_of_a_key(stage: Scene):
    async with stage.agent(stage.embedded()):
        pass
    for path in Path("issuer").iterdir():
        path.chmod(0o644)
    before = tree()
    await stage.doctor()
    assert tree() == before


async def test_doctor_makes_one_exchange_for_each_identity(stage: Scene):
    async with stage.agent():
        before = stage.cloud.sts.actions["AssumeRoleWithWebIdentity"]
        await stage.doctor()
        assert stage.cloud.sts.actions["AssumeRoleWithWebIdentity"] == before + 1


async def test_doctor_takes_no_lock_that_an_agent_needs(stage: Scene):
    async with stage.agent(stage.embedded()):
        pass
    stage.cloud.sts.delay = 0.3
    walk = asyncio.ensure_future(stage.doctor())
    await asyncio.sleep(0.1)
    async with stage.agent(stage.embedded()):
        await walk


async def test_doctor_walks_only_the_named_identity(stage: Scene):
    config = stage.configuration()
    config["identities"].append({**config["identities"][0], "name": "other", "sinks": [{"type": "files", "directory": "./run/other"}]})
    stage.configure(config)
    _, text = await stage.doctor("other")
    assert text.startswith("other\n")
    assert f"\n{NAME}\n" not in text


async def test_last_line_names_the_identities_with_a_broken_link(stage: Scene):
    config = stage.configuration()
    wrong = {**config["identities"][0]["provider"], "roleArn": "arn:aws:iam::123456789012:role/another"}
    other = {"name": "other", "provider": wrong, "sinks": [{"type": "files", "directory": "./run/other"}]}
    async with stage.agent(config):
        config["identities"].append({**config["identities"][0], "name": "twin", "sinks": config["identities"][0]["sinks"], "serve": {}})
        del config["identities"][1]["sinks"]
        stage.configure(config)
        _, text = await stage.doctor()
        assert text.splitlines()[-1] == "# 1 of 2 identities have a broken link: twin (agent)"
        config["identities"][1] = {**config["identities"][0], **other}
        stage.configure(config)
        code, text = await stage.doctor()
    assert code == 3
    assert text.splitlines()[-1] == "# 1 of 2 identities have a broken link: other (agent, exchange, endpoint)"
    assert text.index("\nother\n") < text.index("# what the cloud needs in order to trust s3-reader")


async def test_last_line_reports_that_no_link_is_broken(stage: Scene):
    config = stage.configuration()
    config["identities"].append({**config["identities"][0], "name": "twin", "sinks": [{"type": "files", "directory": "./run/twin"}]})
    async with stage.agent(config) as parts:
        while not parts.store.delivered("twin", WallClock().now()):
            await parts.store.change()
        code, text = await stage.doctor()
    assert code == 0
    assert text.splitlines()[-1] == "# no link is broken"


@pytest.mark.parametrize(("config", "said"), [("identities: 3", "identities"), (None, "the configuration has no identity other")])
async def test_a_bad_configuration_or_name_exits_2(stage: Scene, config: str | None, said: str):
    stage.configure()
    if config:
        CONFIG.write_text(config)
    code, text = await stage.doctor("other")
    assert code == 2
    assert said in text


async def test_an_exchange_left_to_the_sdk_is_made_as_the_sdk_does(stage: Scene):
    config = stage.configuration(serve={})
    config["identities"][0]["provider"]["exchange"] = False
    async with stage.agent(config):
        code, text = await stage.doctor()
        assert code == 0
        assert "exchange ok" in text
        assert "(asked as the SDK would)" in text
        stage.cloud.sts.hanging = True
        config["identities"][0]["refresh"] = {"timeout": "1s"}
        stage.configure(config)
        code, text = await stage.doctor()
        assert "exchange warning" in text  # the SDK asks from elsewhere


async def test_a_generic_provider_has_no_exchange_and_no_commands(stage: Scene):
    async with stage.agent(stage.configuration(provider={"type": "generic", "audiences": ["sts.amazonaws.com"]}, serve={})):
        code, text = await stage.doctor()
        assert code == 0
        assert "issuer   ok" in text
        assert "exchange -" in text
        assert "the cloud needs" not in text


async def test_the_sinks_line_has_the_mount_path(stage: Scene):
    sink = {"type": "files", "directory": f"./run/{NAME}", "mountPath": "/var/run/aws"}
    async with stage.agent(stage.configuration(sinks=[sink])):
        _, text = await stage.doctor()
        assert f"./run/{NAME}, which the workload mounts at /var/run/aws: " in text


async def test_unreadable_keys_make_the_doctor_check_the_delivered_token(stage: Scene):
    async with stage.agent(stage.embedded()):
        Path("issuer", "index.json").write_text("{")
        code, text = await stage.doctor()
        assert code == 0
        assert "the doctor checks the delivered token instead" in text


@pytest.mark.parametrize("gone", ["the folder", "the keys"])
async def test_keys_missing_under_a_running_agent_are_to_be_restored(stage: Scene, gone: str):
    """It signs from memory; started again it would make others, and nobody trusts those."""
    async with stage.agent(stage.embedded()):
        Path("issuer").rename("taken")
        if gone == "the keys":
            Path("issuer").mkdir(mode=0o700)
        code, text = await stage.doctor()
        Path("issuer").exists() and Path("issuer").rmdir()
        Path("taken").rename("issuer")
    assert code == 0
    assert "exchange ok" in text
    assert "  source   warning  " in text
    assert "→ restore the keys before you restart the agent: it signs from memory, and would make new keys that no cloud trusts yet" in text


async def test_root_checks_the_files_of_another_user(stage: Scene):
    async with stage.agent(stage.embedded()):
        pass
    other = os.geteuid() or 1234  # only root can give files away
    for path in (Path("run"), *Path("run").rglob("*"), Path("issuer"), *Path("issuer").iterdir()):
        os.chown(path, other, -1, follow_symlinks=False)
    _, text = await stage.doctor()
    assert "source   ok" in text
    assert "sinks    ok" in text


async def test_control_characters_of_a_claim_are_not_printed(stage: Scene):
    stage.configure()
    stage.present(sub="x\x1b[2Jy\nz")
    _, text = await stage.doctor()
    assert "sub x[2Jyz," in text
    assert "\x1b" not in text


async def test_an_issuer_with_a_line_break_gets_no_commands(stage: Scene):
    stage.configure()
    stage.present(iss="https://issuer.example/\nid")
    _, text = await stage.doctor()
    assert "what the cloud needs" not in text
    assert "\nid" not in text


async def test_a_bug_in_one_link_is_reported_without_its_message():
    async def fail() -> list[object]:
        raise KeyError("canary")

    (finding,) = await _look("issuer", fail)
    assert "KeyError" in finding.text
    assert "canary" not in finding.text


async def test_the_command_prints_only_results_on_standard_output(stage: Scene):
    async with stage.agent():
        environment = {"PATH": os.environ["PATH"], "HOME": str(Path.cwd())}
        run = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "agent", "-c", str(CONFIG), "--log-level", "debug", "doctor"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert run.stdout.startswith(f"{NAME}\n  agent    ok ")
        for secret in stage.secrets():
            assert secret not in run.stdout + run.stderr
        policy = json.loads(run.stdout.partition("<<'POLICY'\n")[2].partition("\nPOLICY\n")[0])
        assert policy["Statement"][0]["Action"] == "sts:AssumeRoleWithWebIdentity"
        assert TOKEN.read_text() not in run.stderr


async def test_an_unreadable_directory_is_not_reported_as_a_bug(stage: Scene):
    """A name that is too long stands for a folder that may not be entered, which root always may: both come from the same call."""
    Path("run").mkdir()
    stage.configure(stage.configuration(sinks=[{"type": "files", "directory": f"./run/{'x' * 300}"}]))
    stage.present()
    _, text = await stage.doctor()
    assert "File name too long" in text
    assert "report this as a bug" not in text


async def test_a_failure_without_a_remedy_leads_to_the_links_below(stage: Scene):
    async with stage.agent() as parts:
        parts.store.attempted(Key(NAME), Unavailable(f"{NAME}: the cloud answered 500"), WallClock().now())
        _, text = await stage.doctor()
    assert "last failure unavailable (1 in a row): the cloud answered 500\n           → see the links below\n" in text


async def test_a_refused_variant_of_run_time_is_reported(stage: Scene):
    async with stage.agent() as parts:
        key = Key(NAME, "https://nope.example")
        parts.store.open_variant(key)
        parts.store.attempted(key, Rejected(f"{NAME}: there is no such thing", remedy="ask for another"), WallClock().now())
        code, text = await stage.doctor()
    assert code == 0
    assert (
        "  agent    warning  a workload asked for https://nope.example: rejected: there is no such thing\n           → ask for another\n"
        in text
    )


@pytest.mark.parametrize(("restart_needed", "remedy"), [(True, "restart the agent"), (False, "run wi-agent check")])
def test_a_refused_configuration_is_reported(restart_needed: bool, remedy: str):
    status = {"identities": [], "refusedConfiguration": ["x.yaml:3: the reason"], "restartNeeded": restart_needed}
    (finding,) = _refused(View(socket="s", status=status))
    assert finding.text.endswith("runs on the previous one: x.yaml:3: the reason")
    assert finding.remedy.partition(",")[0] == remedy


async def test_a_change_that_needs_a_restart_has_that_remedy(stage: Scene):
    """The running agent marks it in its status: the words of the reason may change."""
    config = stage.configuration()
    async with stage.agent(config):
        stage.configure({**config, "admin": {"listen": [f"127.0.0.1:{free_port()}"]}})
        assert not await stage.reload()
        _, text = await stage.doctor()
        assert "  agent    warning  the agent refused the configuration file as it is now" in text
        assert "→ restart the agent, or undo the change" in text


async def test_an_unseen_serviceaccount_is_a_warning_with_the_watch_role(stage: Scene):
    async with stage.agent() as parts:
        record = parts.store.record(Key(NAME))
        record.account = Observation(exists=True, seen_at=datetime(2026, 1, 1, tzinfo=UTC), error=Unavailable("the watch was refused"))
        code, text = await stage.doctor()
        assert code == 0
        assert "agent    warning  answers on ./agent.sock: fresh; its ServiceAccount" in text
        assert "since <time>: the watch was refused" in text
        assert "→ apply docs/rbac/watch.yaml: the agent needs the right to watch the ServiceAccount" in text
        record.account = Observation(exists=True, watched=True)
        assert "  agent    ok       answers on ./agent.sock: fresh\n" in (await stage.doctor())[1]


async def test_a_forbidden_socket_has_the_remedy_to_change_the_user(stage: Scene, monkeypatch):
    async with stage.agent():

        def forbidden(*_):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("agent.commands.control_client._Connection.connect", forbidden)
        _, text = await stage.doctor()
    assert (
        "agent    broken   permission denied for the socket ./agent.sock\n"
        "           → run as the agent's user (the socket's owner) or as root" in text
    )


async def test_commands_for_the_cloud_wait_for_the_first_token(stage: Scene):
    stage.configure()
    TOKEN.unlink()
    _, text = await stage.doctor()
    assert text.endswith(
        "in order to trust s3-reader\n# issuer and subject are in its token: run the doctor again when the source yields one\n"
    )
