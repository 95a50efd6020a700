"""`env`, read back as a shell, a dotenv file and a pod's manifest read it."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from dotenv import dotenv_values

from agent.cli import main
from agent.commands.env_formats import FORMATS
from agent.envvars import EnvVars, Variable

ROLE = "arn:aws:iam::123456789012:role/s3-reader"
LISTEN = "127.0.0.1:9481"


def identity(**more: Any) -> dict[str, Any]:
    return {
        "name": "s3-reader",
        "source": {"type": "file", "path": "/nowhere"},
        "provider": {"type": "aws", "roleArn": ROLE, "region": "eu-west-1", "sessionName": "me"},
        "serve": {"dialects": ["container"]},
        "sinks": [{"type": "files", "directory": '/var/run/it\'s "mine" $HOME `id`'}],
        **more,
    }


class Told:
    """The command, on one configuration."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "config.yaml"
        self._capture = capture
        self._environment = monkeypatch

    def __call__(self, *arguments: str, listen: list[str] | None = None, code: int = 0, **more: Any) -> str:
        self._environment.setenv("WI_AUTHORIZATION", "authorization-canary")
        self._file.write_text(
            yaml.safe_dump({"metadata": {"listen": listen or [LISTEN], "allowNonLoopback": True}, "identities": [identity(**more)]})
        )
        assert main(["-c", str(self._file), "env", "s3-reader", *arguments]) == code
        out, err = self._capture.readouterr()
        assert "authorization-canary" not in out + err
        return str(out if code == 0 else err)


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(tmp_path, capsys, monkeypatch)


def by_shell(text: str, before: Mapping[str, str] | None = None) -> dict[str, str]:
    done = subprocess.run(
        ["/bin/sh", "-euc", 'eval "$1"; /usr/bin/env -0', "sh", text],
        env=dict(before or {}),
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    return {name: value for name, value in found.items() if name not in {"PWD", "SHLVL", "_", "OLDPWD"}}


def by_dotenv(text: str, before: Mapping[str, str] | None = None) -> dict[str, str]:
    found = dotenv_values(stream=StringIO(text), interpolate=True)
    return {name: str(value) for name, value in found.items()}


def by_kubelet(text: str, before: Mapping[str, str] | None = None) -> dict[str, str]:
    """https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/"""
    values = dict(before or {})
    for entry in yaml.safe_load(text):
        assert set(entry) == {"name", "value"}
        assert isinstance(entry["value"], str)

        def expand(found: re.Match[str]) -> str:
            return "$" if found[0] == "$$" else values.get(found[1], found[0])

        values[entry["name"]] = re.sub(r"\$\$|\$\((\w+)\)", expand, entry["value"])
    return {name: value for name, value in values.items() if name not in (before or {})}


READERS: dict[str, Callable[..., dict[str, str]]] = {"shell": by_shell, "dotenv": by_dotenv, "yaml": by_kubelet}
REGION = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}
DIRECTORY = '/var/run/it\'s "mine" $HOME `id`'


@pytest.mark.parametrize("form", READERS)
def test_the_endpoint_in_each_format(told: Told, form: str) -> None:
    assert READERS[form](told("--format", form)) == {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{LISTEN}/aws/s3-reader/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{DIRECTORY}/authorization",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        **REGION,
    }


@pytest.mark.parametrize("form", READERS)
def test_the_files_in_each_format(told: Told, form: str) -> None:
    assert READERS[form](told("--via", "files", "--format", form)) == {
        "AWS_ROLE_ARN": ROLE,
        "AWS_ROLE_SESSION_NAME": "me",
        "AWS_WEB_IDENTITY_TOKEN_FILE": f"{DIRECTORY}/token",
        **REGION,
    }


@pytest.mark.parametrize("form", READERS)
def test_a_configured_authorization_stays_in_its_variable(told: Told, form: str) -> None:
    text = told("--format", form, serve={"dialects": ["container"], "authorization": "${WI_AUTHORIZATION}"}, sinks=[])
    before = {"WI_AUTHORIZATION": "the-pods-uid"}
    if form == "dotenv":
        text = "WI_AUTHORIZATION=the-pods-uid\n" + text
    found = READERS[form](text, before)
    assert found["AWS_CONTAINER_AUTHORIZATION_TOKEN"] == "the-pods-uid"
    assert "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE" not in found


def test_the_shell_form_clears_stronger_variables_and_extends_no_proxy(told: Told) -> None:
    before = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ROLE_ARN"), "x")
    before |= {"AWS_WEB_IDENTITY_TOKEN_FILE": "x", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "x", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "x"}
    found = by_shell(told(), {**before, "NO_PROXY": "a.example", "OTHER": "stays"})
    assert not set(before) & set(found)
    assert (found["NO_PROXY"], found["no_proxy"], found["OTHER"]) == ("a.example,127.0.0.1,localhost", "127.0.0.1,localhost", "stays")
    found = by_shell(told("--via", "files"), {**before, "AWS_CONTAINER_CREDENTIALS_FULL_URI": "x"})
    assert not [name for name in found if name.startswith(("AWS_CONTAINER", "AWS_ACCESS", "AWS_SECRET", "AWS_SESSION", "AWS_PROFILE"))]
    assert found["AWS_ROLE_ARN"] == ROLE


def test_paths_are_as_the_consumer_mounts_them(told: Told) -> None:
    sinks = [{"type": "files", "directory": "/agent", "mountPath": "/consumer", "names": {"token": "jwt"}}]
    assert by_shell(told("--via", "files", sinks=sinks))["AWS_WEB_IDENTITY_TOKEN_FILE"] == "/consumer/jwt"
    assert by_shell(told(sinks=sinks))["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] == "/consumer/authorization"


def test_a_narrowed_session_comes_from_the_file_of_keys(told: Told) -> None:
    provider = identity()["provider"] | {"policy": "{}"}
    found = by_shell(told("--via", "files", provider=provider))
    assert found == {"AWS_SHARED_CREDENTIALS_FILE": f"{DIRECTORY}/credentials", **REGION}


@pytest.mark.parametrize(
    ("listen", "url"),
    [([":9481"], "http://127.0.0.1:9481/"), (["[::1]:9481"], "http://[::1]:9481/"), (["unix:/s", "127.0.0.1:1"], "http://127.0.0.1:1/")],
)
def test_the_address_is_one_that_a_client_can_reach(told: Told, listen: list[str], url: str) -> None:
    assert by_shell(told(listen=listen))["AWS_CONTAINER_CREDENTIALS_FULL_URI"].startswith(url)


def test_an_identity_without_variables_is_refused_with_the_setting(told: Told) -> None:
    assert "is not served" in told("--via", "endpoint", serve={}, code=2)
    assert "is not written to files" in told("--via", "files", sinks=[], code=2)
    assert "its authorization is not stored in a file" in told(sinks=[], code=2)
    assert "has no TCP address" in told(listen=["unix:./s"], code=2)


def test_the_default_is_the_endpoint_where_it_serves_the_identity(told: Told) -> None:
    assert told() == told("--via", "endpoint")
    assert told(serve={}) == told("--via", "files", serve={})


def test_of_several_dialects_it_is_the_first_unless_another_is_chosen(told: Told) -> None:
    serve = {"dialects": ["container", "imds"], "port": 9490}
    assert told(serve=serve) == told("--dialect", "container", serve=serve) == told(serve={**serve, "dialects": ["container"]})
    chosen = by_shell(told("--dialect", "imds", serve=serve))
    assert chosen == by_shell(told("--dialect", "imds", "--via", "endpoint", serve=serve))
    assert chosen["AWS_EC2_METADATA_SERVICE_ENDPOINT"] == "http://127.0.0.1:9490"
    assert not [name for name in chosen if name.startswith("AWS_CONTAINER")], "one way only"


def test_a_dialect_that_is_not_served_is_refused_with_those_that_are(told: Told) -> None:
    said = told("--dialect", "imds", code=2)
    assert "s3-reader is not served as imds" in said
    assert "choose one of: container;" in said
    assert "is not served" in told("--dialect", "imds", serve={}, code=2)
    assert "files have no dialect" in told("--dialect", "container", "--via", "files", code=2)


NASTY = [
    "",
    " ",
    "a b",
    "it's",
    '"',
    "$HOME",
    "`id`",
    "$(id)",
    "$(FIRST)",
    "$$",
    "a\\b",
    "#x",
    "a=b",
    "é",
    "100%",
    "a'b\"c",
    "\\",
    "*",
    "~",
]


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize("value", NASTY)
def test_every_value_is_read_back_unchanged(form: str, value: str) -> None:
    text = FORMATS[form](EnvVars(values={"FIRST": value, "SECOND": "second"}))
    assert READERS[form](text) == {"FIRST": value, "SECOND": "second"}, text


def test_the_reader_expands_a_variable() -> None:
    variables = EnvVars(values={"TOKEN": Variable("UID_OF_POD")})
    assert by_shell(FORMATS["shell"](variables), {"UID_OF_POD": "a b"})["TOKEN"] == "a b"
    assert by_kubelet(FORMATS["yaml"](variables), {"UID_OF_POD": "a b"})["TOKEN"] == "a b"
    assert by_dotenv("UID_OF_POD=abc\n" + FORMATS["dotenv"](variables))["TOKEN"] == "abc"
    assert json.loads(re.search(r"value: (\".*\")", FORMATS["yaml"](variables))[1]) == "$(UID_OF_POD)"  # type: ignore[index]


@pytest.mark.parametrize("role", [None, ROLE])
def test_a_principal_from_annotations_is_not_guessed(told: Told, role: str | None) -> None:
    source = {"type": "kubernetes", "serviceAccount": {"namespace": "demo", "name": "app"}}
    provider = {"type": "aws", "region": "eu-west-1", "fromServiceAccount": True, **({"roleArn": role} if role else {})}
    assert "AWS_CONTAINER_CREDENTIALS_FULL_URI" in told("--via", "endpoint", source=source, provider=provider)
    said = told("--via", "files", source=source, provider=provider, code=0 if role else 2)
    assert (ROLE in said) if role else ("its ServiceAccount names the principal" in said)
    if not role:
        assert "(use --via endpoint, or" in said
        assert "(add serve.dialects and use --via endpoint, or" in told(source=source, provider=provider, serve={}, code=2)
