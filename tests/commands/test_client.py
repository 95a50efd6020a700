"""Client commands start in a blink: they load neither a server nor any SDK."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any

import pytest

from agent.cli import main
from agent.commands import client

HEAVY = (
    "aiohttp",
    "aiobotocore",
    "botocore",
    "cryptography",
    "google",
    "jsonschema",
    "jwt",
    "kubernetes_asyncio",
    "msgspec",
    "prometheus_client",
)
PROGRAM = """
import sys
from agent.cli import main
code = main(sys.argv[2:])
loaded = [name for name in sys.argv[1].split(",") if name in sys.modules]
print(code, *loaded)
"""


@pytest.mark.parametrize("arguments", [("status",), ("renew", "one"), ("revoke", "one"), ("wait", "--timeout", "0")])
def test_client_commands_load_neither_a_server_nor_any_sdk(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(HEAVY), *arguments, "--socket", str(tmp_path / "none.sock")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "4\n"


def test_the_list_of_heavy_modules_names_what_schema_loads(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, ",".join(HEAVY), "schema"], capture_output=True, text=True, check=False)
    assert "msgspec" in done.stdout.splitlines()[-1]


TRANSIENT = {"message": "two: AWS answered 500", "remedy": "", "result": "unavailable"}
LASTING = {"message": "AWS said no", "remedy": "", "result": "rejected"}
OTHERS = [{"name": "two", "failure": TRANSIENT}, {"name": "three", "failure": LASTING}]


class Agent(BaseHTTPRequestHandler):
    """Says what an agent might that repeats a token's words."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reply({"renewals": {"one\x1b[2J": "failed", "two": "failed", "three": "failed"}})

    def do_GET(self) -> None:
        failure = {"message": "sub is \x1b]0;owned\x07", "remedy": "type \r\n\u202ethis", "result": "rejected"}
        self.reply({"identities": [{"name": "one\x1b[2J", "failure": failure}, *OTHERS]})

    def reply(self, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_arguments: object) -> None:
        """Silent."""


def test_a_failed_renewal_is_explained_without_terminal_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "a.sock")
    with UnixStreamServer(path, lambda request, _client, server: Agent(request, ("", 0), server)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            code = main(["renew", "one", "--socket", path])
        finally:
            server.shutdown()
            thread.join()
    assert code == 3
    assert capsys.readouterr().out.splitlines() == [
        "one[2J: failed: sub is ]0;owned (type this)",
        "two: failed: AWS answered 500 (the agent retries by itself; if the failure stays, type: wi-agent doctor two)",
        "three: failed: AWS said no",
    ]


def test_an_agent_that_hangs_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.sock")
    monkeypatch.setattr(client, "STATUS_TIMEOUT_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as silence:
        silence.bind(path)
        silence.listen()
        assert main(["status", "--socket", path]) == 4
    assert f"no agent answers on {path}: timed out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "control: {socket: ./a.sock}\nidentities: [",
        "control:\n  socket: './a.sock'\nidentities: [",
        'control: {"x": 1, socket: "./a.sock"}\n\t-',
    ],
)
def test_the_socket_is_found_in_a_file_that_is_not_valid_yaml(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert client._configured(tmp_path / "c.yaml") == "./a.sock"


@contextmanager
def answering(path: str, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """A program on the socket that says whatever it likes to each client."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as connection, suppress(OSError):
                    request = connection.recv(65536)
                    while request.startswith(b"POST") and not request.endswith(b"}"):
                        request += connection.recv(65536)
                    answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        listener.close()
    assert not thread.is_alive()


def told(body: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def endless(start: bytes, part: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(part)

    return answer


STRANGE = {
    "a list": told(b"[]"),
    "depth": told(b"[" * 100_000),
    "deep members": told(b'{"identities": ' + b"[" * 1000 + b"]" * 1000 + b"}"),
    "digits": told(b'{"identities": [], "now": ' + b"9" * 5000 + b"}"),
    "no text": told(b"\xff\xfe"),
    "nothing": told(b"{}"),
    "other members": told(b'{"identities": [{}], "ready": [], "renewals": 3, "revocations": 3}'),
    "no mapping": told(b'{"identities": 7, "renewals": {"one": {}}, "revocations": {"one": {}}}'),
    "an infinite time": told(b'{"identities": [], "now": 1e999}'),
    "without end": endless(b"HTTP/1.1 200 OK\r\n\r\n", b"[" * 1_000_000),
}


COMMANDS = (["status"], ["status", "--json"], ["renew", "one"], ["revoke", "one"], ["wait", "--timeout", "0.2"])
REPEATED = {"digits", "an infinite time"}
"""Answers that `status --json` repeats: they are JSON with the members of an agent's."""


@pytest.mark.parametrize(
    ("what", "command"), [(what, command) for what in STRANGE for command in COMMANDS if what not in REPEATED or "--json" not in command]
)
def test_a_program_that_is_not_an_agent_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, command: list[str]
) -> None:
    path = str(tmp_path / "a.sock")
    with answering(path, STRANGE[what]):
        assert main([*command, "--socket", path]) == 4
    said = capsys.readouterr()
    assert f"wi-agent: the program that answers on {path} is not an agent: name the" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "answer",
    [
        endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["chunks", "100 Continue"],
)
def test_an_answer_that_never_ends_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: Callable[[socket.socket], None]
) -> None:
    monkeypatch.setattr(client, "STATUS_TIMEOUT_SECONDS", 0.3)
    path = str(tmp_path / "a.sock")
    with answering(path, answer):
        assert main(["status", "--socket", path]) == 4
    assert f"no agent answers on {path}: timed out" in capsys.readouterr().err
