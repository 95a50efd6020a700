"""The bounds of docs/security.md that no parser's own tests hold."""

import os
from pathlib import Path
from typing import Any

import pytest

from agent.config.loading import MAX_FILE_BYTES as LONGEST_CONFIGURATION
from agent.config.loading import load
from agent.errors import ConfigError, RefreshError
from agent.kube import credentials
from agent.serving.control import ControlEndpoint
from agent.sinks.files import secret_file
from agent.store import Store
from tests.fakes import FakeClock
from tests.fuzz.parsers import _Request


@pytest.mark.parametrize("text", ["#" * (LONGEST_CONFIGURATION + 1), "a: " + "[" * 5000, "refresh: {concurrency: 0x" + "f" * 5000 + "}"])
def test_a_configuration_beyond_its_bounds_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("text", ["a: " + "[" * 5000, "users: 0x" + "f" * 5000, "- {}\n" * 20_000, "\0", "!!python/object:os.system x"])
def test_a_kubeconfig_beyond_its_bounds_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(RefreshError) as refused:
        credentials.from_kubeconfig(file)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("size", "taken"), [(1, True), (secret_file.MAX_SECRET_BYTES, True), (secret_file.MAX_SECRET_BYTES + 1, False), (1 << 24, False)]
)
def test_an_authorization_file_beyond_its_bytes_is_not_taken(tmp_path: Path, size: int, taken: bool) -> None:
    (tmp_path / "authorization").write_bytes(b"a" * size)
    (tmp_path / "authorization").chmod(0o640)
    root = os.open(tmp_path, os.O_RDONLY)
    try:
        assert (secret_file.read(root, "authorization") is not None) is taken
    finally:
        os.close(root)


async def test_a_name_sent_many_times_is_renewed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, renewed = ControlEndpoint(Store(), FakeClock()), []
    monkeypatch.setattr(endpoint, "_store", _Known())

    async def renew(name: str, *, by_name: bool) -> str:
        assert by_name
        renewed.append(name)
        return "renewed"

    monkeypatch.setattr(endpoint, "_renew_one", renew)
    request: Any = _Request("POST", "/renew", b'{"names": [' + b'"a",' * 100_000 + b'"a"]}')
    assert (await endpoint.answer(request)).status == 200
    assert renewed == ["a"]


class _Known(Store):
    def profile(self, name: str) -> Any:
        return name
