"""`env` of Azure's and Alibaba Cloud's dialects, whose SDKs take the authorization itself and not the path of its file."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cli import main
from tests.commands.test_env import READERS, by_shell

CANARY = "authorization-canary"
AZURE = {
    "type": "azure",
    "tenantId": "11111111-2222-3333-4444-555555555555",
    "clientId": "7d1a0c5e-8f0c-4f7a-9a55-0d8c3f1b2a90",
}
ALIBABA = {
    "type": "alibaba",
    "roleArn": "acs:ram::1234567890123456:role/oss-reader",
    "oidcProviderArn": "acs:ram::1234567890123456:oidc-provider/cluster",
}
NO_PROXY = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
IDENTITY = "http://127.0.0.1:9481/azure/one/token"
URI = "http://127.0.0.1:9481/alibaba/one/{}/credentials"


class Told:
    """The command, on one configuration with one served identity."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder / 'it\'s "mine" $HOME `id`'
        self._file = folder / "config.yaml"
        self._capture = capture

    def __call__(
        self, provider: dict[str, Any], serve: dict[str, Any], form: str = "shell", *, code: int = 0, listen: str = "127.0.0.1:9481"
    ) -> str:
        configured = "authorization" in serve
        identity = {
            "name": "one",
            "source": {"type": "file", "path": "/nowhere"},
            "provider": provider,
            "serve": serve,
            "sinks": [] if configured else [{"type": "files", "directory": str(self.folder)}],
        }
        self._file.write_text(yaml.safe_dump({"metadata": {"listen": [listen]}, "identities": [identity]}))
        assert main(["-c", str(self._file), "env", "one", "--format", form]) == code
        out, err = self._capture.readouterr()
        assert CANARY not in out + err
        return str(out if code == 0 else err)


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setenv("WI_AUTHORIZATION", CANARY)
    found = Told(tmp_path, capsys)
    found.folder.mkdir()
    (found.folder / "authorization").write_text(CANARY)
    return found


@pytest.mark.parametrize(
    ("provider", "dialect", "expected"),
    [
        (AZURE, "appservice", {"IDENTITY_ENDPOINT": IDENTITY, "IDENTITY_HEADER": CANARY}),
        (
            ALIBABA,
            "uri",
            {
                "ALIBABA_CLOUD_CREDENTIALS_URI": URI.format(CANARY),
                "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
                "ALIBABA_CLOUD_CLI_PROFILE_DISABLED": "true",
            },
        ),
    ],
)
@pytest.mark.parametrize("form", READERS)
def test_the_reader_of_the_variables_fills_in_the_authorization(
    told: Told, monkeypatch: pytest.MonkeyPatch, provider: dict[str, Any], dialect: str, expected: dict[str, str], form: str
) -> None:
    serve = {"dialects": [dialect], "authorization": "${WI_AUTHORIZATION}"}
    found = READERS[form](told(provider, serve, form), {"WI_AUTHORIZATION": CANARY})
    found.pop("WI_AUTHORIZATION", None)
    assert found == {**expected, **NO_PROXY}
    if form == "shell":
        assert by_shell(told(provider, {"dialects": [dialect]})) == {**expected, **NO_PROXY}, "from its file"
    else:
        assert "--format shell" in told(provider, {"dialects": [dialect]}, form, code=2)


@pytest.mark.parametrize("form", READERS)
def test_dialects_without_authorization_in_each_format(told: Told, form: str) -> None:
    found = READERS[form](told(AZURE, {"dialects": ["azure-imds"], "default": True}, form))
    assert found == {"AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:9481", **NO_PROXY}
    found = READERS[form](told(AZURE, {"dialects": ["azure-imds"], "port": 9511}, form))
    assert found["AZURE_POD_IDENTITY_AUTHORITY_HOST"] == "http://127.0.0.1:9511"
    found = READERS[form](told(ALIBABA, {"dialects": ["ecs"], "default": True}, form, listen="100.100.100.200:80"))
    assert found == {
        "ALIBABA_CLOUD_ECS_METADATA": "oss-reader",
        "ALIBABA_CLOUD_IMDSV1_DISABLED": "true",
        "ALIBABA_CLOUD_CLI_PROFILE_DISABLED": "true",
        "NO_PROXY": "127.0.0.1,localhost,100.100.100.200",
        "no_proxy": "127.0.0.1,localhost,100.100.100.200",
    }


def test_variables_that_win_over_the_endpoint_are_cleared(told: Told) -> None:
    before = dict.fromkeys(
        ("AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_ID", "IMDS_ENDPOINT", "IDENTITY_SERVER_THUMBPRINT"), "x"
    )
    found = by_shell(told(AZURE, {"dialects": ["appservice"]}), before)
    assert not set(before) & set(found)
    found = by_shell(
        told(AZURE, {"dialects": ["azure-imds"], "default": True}), {**before, "IDENTITY_ENDPOINT": "x", "IDENTITY_HEADER": "x"}
    )
    assert set(found) == {"AZURE_POD_IDENTITY_AUTHORITY_HOST", *NO_PROXY}
    before = dict.fromkeys(
        ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_OIDC_TOKEN_FILE", "ALIBABA_CLOUD_PROFILE", "ALIBABA_CLOUD_ECS_METADATA"), "x"
    )
    found = by_shell(told(ALIBABA, {"dialects": ["uri"]}), before)
    assert not set(before) & set(found)
