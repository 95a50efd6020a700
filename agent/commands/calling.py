"""HTTP over the control socket with the standard library alone, so that a client command starts in a blink."""

import http.client
import json
import socket
from typing import Any


class NobodyThere(Exception):  # noqa: N818  # a finding
    """No agent answers on the socket; `remedy` says what to do about it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")
        self.message = message
        self.remedy = remedy


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("agent", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: str, method: str, route: str, body: Any = None, *, patience: float = 75.0) -> tuple[int, dict[str, Any]]:
    """Status code and answer, within so many seconds. Raises NobodyThere."""
    connection = _Connection(path, patience)
    try:
        connection.request(method, route, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except PermissionError:
        raise NobodyThere(f"may not use the socket {path}", "run as the agent's user (the socket's owner) or as root") from None
    except FileNotFoundError:
        raise NobodyThere(
            f"no agent: there is no socket {path}", "start it: wi-agent run -c FILE; or say where it listens: --socket PATH"
        ) from None
    except ConnectionRefusedError:
        raise NobodyThere(f"no agent: what listened on {path} has died", "start it: wi-agent run -c FILE") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NobodyThere(
            f"no agent answers on {path}: {error or type(error).__name__}", "look at its log, or start it: wi-agent run -c FILE"
        ) from None
    finally:
        connection.close()
