"""As the image runs it: `PYTHONOPTIMIZE=2` takes away every `assert` and every docstring, and nothing may hang on them."""

import asyncio
import json
from typing import Any

import pytest

from agent.config.schema import schema
from tests.e2e.daemon import Daemon
from tests.e2e.everything import CLOUDS, everything
from tests.e2e.test_hostile import ask

OPTIMISED = {"PYTHONOPTIMIZE": "2"}
FILES = {"token", "credentialsFile", "config", "grant.json"}


async def test_without_asserts_and_docstrings_every_cloud_is_served_and_delivered(daemon: Daemon) -> None:
    daemon.environment |= OPTIMISED
    async with everything(daemon) as one:
        for dialect in one.ways():
            answer = await ask(one, dialect)
            assert answer.status == 200, (dialect, answer)
            assert any(secret.encode() in answer.body for secret in one.secrets), dialect
        for name in (f"{cloud}{suffix}" for cloud in CLOUDS for suffix in ("", "-other")):
            assert {path.name for path in (daemon.folder / "identities" / name / "..data").iterdir()} >= FILES, name
        assert [line for line in daemon.log() if line["level"] in {"warning", "error", "critical"} and line["event"] != "grant.short"] == []
        await asyncio.to_thread(daemon.stop)


def without_descriptions(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: without_descriptions(value) for name, value in tree.items() if name != "description" or not isinstance(value, str)}
    return [without_descriptions(one) for one in tree] if isinstance(tree, list) else tree


def test_without_docstrings_the_schema_lacks_descriptions_and_nothing_else(daemon: Daemon) -> None:
    printed = daemon.cli("schema", **OPTIMISED).stdout
    assert without_descriptions(json.loads(printed)) == without_descriptions(json.loads(json.dumps(schema())))
    assert '"description": ""' not in printed


@pytest.mark.parametrize("arguments", [("check",), ("--help",), ("env", "--help")])
def test_without_docstrings_it_says_the_same(daemon: Daemon, arguments: tuple[str, ...]) -> None:
    daemon.file.write_text("identities:\n  - name: X\n    sorce: {type: isuer}\n    provider: {type: aws, roleArn: 3}\n")
    plain, optimised = daemon.cli(*arguments), daemon.cli(*arguments, **OPTIMISED)
    assert (optimised.returncode, optimised.stdout, optimised.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert plain.stdout + plain.stderr
