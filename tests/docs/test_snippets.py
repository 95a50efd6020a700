"""Configurations in the documents pass `check`, manifests a cluster's schema, and the code is code that works."""

import os
import subprocess
import sys
from pathlib import PurePosixPath
from types import ModuleType

import kubernetes_validate
import pytest
import yaml
from structlog.testing import capture_logs

from agent.clock import WallClock
from agent.config.loading import check
from agent.counters import Counters
from agent.identities.withdrawal import withdraw
from agent.model import Credential, Grant, Key, Paths, Provider, Sink, Source
from agent.toolbox import Toolbox
from tests.docs.conftest import PAPERS, ROOT, blocks, names

EVERYTHING = [(paper, text) for paper in PAPERS for text in blocks(paper, "yaml")]
CONFIGURATIONS = [(paper, text) for paper, text in EVERYTHING if "apiVersion" not in text]
MANIFESTS = [(paper, text) for paper, text in EVERYTHING if "apiVersion" in text]
ISSUER = {"url": "https://issuer.example", "listen": ["127.0.0.1:9482"], "state": "./issuer"}
TOKEN = "e30.eyJhdWQiOlsiZGVtbyJdLCJpYXQiOjE3OTUyNTkxODgsImV4cCI6MTc5NTI2Mjc4OH0.c2ln"


def whole(found) -> dict:
    """A configuration around a part of one: a list of identities, one identity, or the top level."""
    if isinstance(found, list):
        found = {"identities": found}
    elif "name" in found:
        found = {"identities": [found]}
    found = {"identities": []} | found
    types = [identity.get("source", {}).get("type") for identity in found.get("identities", ())]
    return found | ({"issuer": ISSUER} if "issuer" in types and "issuer" not in found else {})


@pytest.mark.parametrize(("paper", "text"), CONFIGURATIONS, ids=lambda value: names(value) if hasattr(value, "parent") else "")
def test_a_configuration_in_a_paper_passes_check(tmp_path, monkeypatch, paper, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(whole(yaml.safe_load(text)), sort_keys=False))
    verdict = check(tmp_path / "config.yaml", {"WI_AUTHORIZATION": "0123456789abcdef"})
    assert verdict.faults == []
    assert verdict.config is not None


@pytest.mark.parametrize(("paper", "text"), MANIFESTS, ids=lambda value: names(value) if hasattr(value, "parent") else "")
def test_a_manifest_in_a_paper_is_one_for_the_api_server(paper, text):
    for manifest in yaml.safe_load_all(text):
        kubernetes_validate.validate(manifest, "1.35", strict=True)


def modules() -> dict[str, ModuleType]:
    """The code of docs/extending.md, each block a module."""
    found = {}
    for number, text in enumerate(blocks(ROOT / "docs" / "extending.md", "python")):
        module = ModuleType(f"extending_{number}")
        sys.modules[module.__name__] = module
        exec(compile(text, f"docs/extending.md, block {number}", "exec"), module.__dict__)
        found |= dict.fromkeys(vars(module), module)
    return found


def tools() -> Toolbox:
    return Toolbox(clock=WallClock(), random=None, counters=Counters(), http=None)


async def test_the_source_provider_and_sink_of_the_paper_on_extending_carry_a_token():
    code = modules()
    program = code["ProgramSource"]
    source = program.ProgramSource(program.ProgramSettings(command=(sys.executable, "-c", f"print('{TOKEN}')")), "example", tools())
    token = await source.fetch(["demo"])
    assert token.audiences == ("demo",)

    warehouse = code["WarehouseProvider"]
    provider = warehouse.WarehouseProvider(warehouse.WarehouseSettings(account="a"), "example", tools())
    credential = await provider.exchange(token)
    paths = Paths(directory=PurePosixPath("/there"))
    assert "password_file=/there/token" in credential.files(paths)["credentialsFile"].reveal()

    sink = code["DictionarySink"].DictionarySink("dictionary")
    assert await sink.read() is None
    await sink.write(Grant(key=Key("example"), digest="", token=token, credential=credential, generation=1))
    assert sink.held == {"token": TOKEN}
    assert (await sink.read()).token_expires_at == token.expires_at
    with capture_logs() as logs:
        await withdraw(sink)
    assert (sink.held, await sink.read(), logs) == ({}, None, [])


def kinds() -> dict:
    """One of each kind in the paper, by the protocol that it keeps."""
    code = modules()
    program, warehouse = code["ProgramSource"], code["WarehouseProvider"]
    return {
        Source: program.ProgramSource(program.ProgramSettings(command=("true",)), "example", tools()),
        Provider: warehouse.WarehouseProvider(warehouse.WarehouseSettings(account="a"), "example", tools()),
        Credential: warehouse.WarehouseCredential(warehouse.WarehouseSettings(account="a")),
        Sink: code["DictionarySink"].DictionarySink("dictionary"),
    }


PROTOCOLS = """
from agent.model import Credential, Provider, Sink, Source
from extending_0 import ProgramSource
from extending_1 import WarehouseCredential, WarehouseProvider
from extending_2 import DictionarySink

def protocols(
    source: ProgramSource, provider: WarehouseProvider, credential: WarehouseCredential, sink: DictionarySink
) -> tuple[Source, Provider, Credential, Sink]:
    return source, provider, credential, sink
"""


def test_the_code_on_extending_passes_mypy_strict(tmp_path):
    for number, text in enumerate(blocks(ROOT / "docs" / "extending.md", "python")):
        (tmp_path / f"extending_{number}.py").write_text(text)
    (tmp_path / "protocols.py").write_text(PROTOCOLS)
    command = [sys.executable, "-m", "mypy", "--strict", *sorted(tmp_path.iterdir())]  # 16 s unless `make lint` has filled the cache
    found = subprocess.run(command, cwd=ROOT, env={**os.environ, "MYPYPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.replace(str(tmp_path), "")) == (0, "Success: no issues found in 4 source files\n"), found.stderr


@pytest.mark.parametrize("protocol", [Source, Provider, Credential, Sink], ids=lambda protocol: protocol.__name__)
def test_each_kind_in_the_paper_on_extending_has_all_that_its_protocol_asks_for(protocol):
    wanted = {name for name in vars(protocol) if not name.startswith("_")}
    assert wanted
    assert {name for name in wanted if not hasattr(kinds()[protocol], name)} == set()


async def test_the_source_of_the_paper_on_extending_fails_as_it_should():
    program = modules()["ProgramSource"]
    for command, reaction in ((["no-such-program"], "rejected"), ([sys.executable, "-c", "exit(1)"], "not_ready")):
        source = program.ProgramSource(program.ProgramSettings(command=command), "example", tools())
        with pytest.raises(Exception) as caught:
            await source.fetch([])
        assert caught.value.reaction == reaction
