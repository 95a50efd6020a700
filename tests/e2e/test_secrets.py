"""Canaries in every field that can hold a secret, all failure paths run: none is seen in anything that the agent says."""

import base64
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

import jwt
import yaml

from tests.e2e.daemon import Daemon, configuration, fetch, identity, until

SESSION = "CANARY-session-token"
SECRET_KEY = "CANARY-secret-access-key"
ECHOED = "said by STS"
AUTHORIZATION = "CANARY-authorization-of-the-environment"
IN_FILE = "CANARY-authorization-in-the-file"
GUESSED = "CANARY-authorization-that-somebody-guessed"
PROXY = "CANARY-proxy-password"
USER = "CANARY-proxy-user"
ENDPOINT = "CANARY-endpoint-password"
NO_TOKEN = "CANARY-in-a-file-that-holds-no-token"
CANARIES = (SESSION, SECRET_KEY, AUTHORIZATION, IN_FILE, GUESSED, PROXY, USER, ENDPOINT, NO_TOKEN)
ROLE = "arn:aws:iam::123456789012:role/x"


class Sts(BaseHTTPRequestHandler):
    """Grants, refuses and babbles, by the role's last letter; says what it was told, which a cloud should not."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        sent = unquote(body)
        expires = datetime.now(UTC) + timedelta(hours=1)
        if "role/grants" in sent:
            keys = f"<SecretAccessKey>{SECRET_KEY}</SecretAccessKey><SessionToken>{SESSION}</SessionToken>"
            keys += f"<AccessKeyId>AKIA0123456789</AccessKeyId><Expiration>{expires:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
            result = f"<AssumeRoleWithWebIdentityResult><Credentials>{keys}</Credentials></AssumeRoleWithWebIdentityResult>"
            self._answer(200, f"<AssumeRoleWithWebIdentityResponse>{result}</AssumeRoleWithWebIdentityResponse>")
        elif "role/refuses" in sent:
            message = f"{ECHOED} {sent.partition('WebIdentityToken=')[2]}".replace("&", " ")
            self._answer(
                400, f"<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>{message}</Message></Error></ErrorResponse>"
            )
        else:
            self._answer(200, f"<html>{ECHOED} {SECRET_KEY} {sent.replace('&', ' ')}")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@contextmanager
def sts() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Sts) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def aws(name: str, endpoint: str, **more: Any) -> dict[str, Any]:
    provider = {"type": "aws", "roleArn": f"arn:aws:iam::123456789012:role/{name}", "region": "eu-west-1", "endpoint": endpoint}
    return identity(name, provider=provider | more, required=False)


def test_no_secret_is_seen_in_anything_that_the_agent_says(daemon: Daemon) -> None:
    folder = daemon.folder
    token = jwt.encode({"iss": "x", "sub": "CANARY", "aud": "demo", "iat": 1, "exp": int(time.time()) + 3600}, "k" * 32)
    (folder / "token").write_text(token)
    (folder / "expired").write_text(jwt.encode({"iss": "x", "sub": "CANARY", "aud": "demo", "iat": 1, "exp": 2}, "k" * 32))
    (folder / "prose").write_text(NO_TOKEN)
    daemon.environment["WI_AUTHORIZATION"] = AUTHORIZATION
    heard: dict[str, str] = {}

    def hear(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = daemon.cli(*arguments)
        heard[" ".join(arguments) + f" {len(heard)}"] = done.stdout + done.stderr
        return done

    with sts() as url:
        files = {
            name: identity(name, source={"type": "file", "path": f"./{name}"}, required=False) for name in ("token", "expired", "prose")
        }
        served = aws("grants", url) | {"serve": {"dialects": ["container"], "authorization": "${WI_AUTHORIZATION}"}}
        written = aws("refuses", url) | {"serve": {"dialects": ["container"], "authorization": IN_FILE}}
        proxied = aws("proxied", "https://127.0.0.1:9", proxy=f"http://{USER}:{PROXY}@127.0.0.1:9")
        config = configuration(identity("own"), *files.values(), served, written, aws("babbles", url), proxied)
        daemon.start(config, "--log-level", "debug")
        until(lambda: all(daemon.status()[name]["failure"] for name in ("expired", "prose", "refuses", "babbles", "proxied")))
        until(lambda: daemon.status()["grants"]["state"] == "fresh")

        endpoint = f"http://{daemon.address('metadata')}/aws/grants/credentials"
        assert SECRET_KEY in told(endpoint, AUTHORIZATION)[1], "who knows it is told"
        for credential in ("", GUESSED, IN_FILE, AUTHORIZATION[:-1]):
            status, heard[f"endpoint {credential[:12]}"] = told(endpoint, credential)
            assert status == 401
        heard["endpoint path"] = told(f"{endpoint}/{AUTHORIZATION}", GUESSED)[1]
        heard["endpoint refuses"] = told(endpoint.replace("grants", "refuses"), IN_FILE)[1]
        for arguments in (("status",), ("status", "--json"), ("renew", "--all"), ("wait", "--timeout", "0.2"), ("doctor",), ("check",)):
            hear(*arguments)
        for name in ("grants", "refuses", "proxied"):
            for via in ("endpoint", "files"):
                hear("env", name, "--via", via)
        hear("issuer", "export", "./site")
        heard["metrics"] = daemon.admin("/metrics")[1]
        heard["readyz"] = "".join(daemon.admin(f"/readyz/{name}")[1] for name in daemon.status())

        wrong = [
            aws("grants", url.replace("://", f"://user:{ENDPOINT}@")),
            aws("grants", f"https://user:{ENDPOINT}@sts.example/?x#y"),
            aws("grants", f"ftp://user:{ENDPOINT}@sts.example"),
            aws("grants", url, proxy=f"http://{USER}:{PROXY}@127.0.0.1:port"),
            aws("grants", url, proxy=[f"http://{USER}:{PROXY}@127.0.0.1:9"]),
            aws("grants", url) | {"serve": {"dialects": ["container"], "authorization": [IN_FILE]}},
            aws("grants", url) | {"serve": {"dialects": ["container"], "authorization": f"{IN_FILE} "}},
            aws("grants", url) | {"serve": {"authorisation": IN_FILE}},
        ]
        for index, one in enumerate(wrong):
            daemon.configure(configuration(one))
            assert hear("check").returncode == 2, index
            before = len(daemon.log("config.refused"))
            daemon.signal(signal.SIGHUP)
            until(lambda before=before: len(daemon.log("config.refused")) > before)
        daemon.configure(configuration(issuer={**config["issuer"], "url": f"https://user:{ENDPOINT}@issuer.example"}))
        assert hear("check").returncode == 2
        daemon.file.write_text(f"identities: [{{name: x, serve: {{authorization: '{IN_FILE}}}]\n")
        assert hear("check").returncode == hear("once").returncode == hear("run").returncode == hear("env", "x").returncode == 2
        daemon.stop()
        heard["daemon"] = daemon.text()
        daemon.configure(config | {"identities": [one for one in config["identities"] if one["name"] != "own"]})
        assert hear("once", "--timeout", "2").returncode == 3
        heard["public files"] = "".join(
            path.read_text()
            for name in ("config", "grant.json", "credentialsFile")
            for path in (folder / "identities").glob(f"*/..data/{name}")
        )
        assert "refuses" in heard["daemon"]

    tokens = [token, *(path.read_text() for path in (folder / "identities").glob("*/..data/token"))]
    signatures = [part for text in tokens for part in text.split(".")[1:]]
    keys = [line for path in (folder / "issuer").rglob("*") if path.is_file() for line in private_lines(path.read_text())]
    assert signatures
    assert keys, "the issuer's private keys were found"
    authorizations = [path.read_text() for path in (folder / "identities").glob("*/authorization")]
    sought = [*CANARIES, *signatures, *keys, *authorizations]
    sought += [quote(each) for each in CANARIES] + [base64.b64encode(each.encode()).decode().rstrip("=")[:-1] for each in CANARIES]
    found = [(where, canary) for where, text in heard.items() for canary in sought if canary in text]
    assert not found


def told(url: str, authorization: str) -> tuple[int, str]:
    """What the metadata endpoint answers."""
    return fetch(url, Authorization=authorization) if authorization else fetch(url)


def private_lines(text: str) -> list[str]:
    """What of a state file must stay in it: the lines of a PEM key, the private numbers of a JWK."""
    if "PRIVATE KEY" in text:
        return [line for line in text.splitlines() if line and "-----" not in line]
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return [str(value) for key, value in found.items() if key in {"d", "p", "q"}] if isinstance(found, dict) else []


def test_the_last_net_is_not_what_holds(daemon: Daemon) -> None:
    """The configuration in the process's own words: nothing of it is repeated where it is not understood."""
    daemon.file.write_text(yaml.safe_dump(configuration() | {"identities": {"x": AUTHORIZATION}, "control": AUTHORIZATION}))
    done = daemon.cli("check")
    assert done.returncode == 2
    assert AUTHORIZATION not in done.stderr
