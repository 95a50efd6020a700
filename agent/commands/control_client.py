"""HTTP over the control socket with the standard library alone, which keeps the start of a client command short."""

import http.client
import json
import socket
import threading
from contextlib import suppress
from typing import Any

from agent.parsing import json_object

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""The status of ten thousand identities is smaller."""


class NoAgent(Exception):  # noqa: N818  # a state, not an error
    """No agent answers on the socket; `remedy` says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")
        self.message = message
        self.remedy = remedy


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("agent", timeout=timeout)
        self.expired = False
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def connect(self) -> None:
        self.sock = self._socket
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def close(self) -> None:
        """Close the socket too, which http.client releases before the answer was read."""
        super().close()
        self._socket.close()

    def expire(self) -> None:
        """End the request; for another thread."""
        self.expired = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def ask(path: str, method: str, route: str, body: Any = None, *, timeout: float = 75.0) -> tuple[int, dict[str, Any]]:
    """Return status code and answer, within `timeout` seconds in all. Raises NoAgent."""
    connection = _Connection(path, timeout)
    alarm = threading.Timer(timeout, connection.expire)
    alarm.daemon = True
    alarm.start()
    try:
        connection.request(method, route, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read(MAX_ANSWER_BYTES + 1)
    except PermissionError:
        raise NoAgent(f"permission denied for the socket {path}", "run as the agent's user (the socket's owner) or as root") from None
    except FileNotFoundError:
        raise NoAgent(
            f"no agent: the socket {path} does not exist", "start the agent: wi-agent run -c FILE; or name its socket: --socket PATH"
        ) from None
    except ConnectionRefusedError:
        raise NoAgent(f"no agent: the program that listened on {path} has ended", "start the agent: wi-agent run -c FILE") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _silent(path, "timed out" if connection.expired else str(error) or type(error).__name__) from None
    finally:
        alarm.cancel()
        connection.close()
    if connection.expired:
        raise _silent(path, "timed out")
    answer = json_object(text, longest=MAX_ANSWER_BYTES)
    if answer is None:
        raise stranger(path)
    return response.status, answer


def _silent(path: str, why: str) -> NoAgent:
    return NoAgent(f"no agent answers on {path}: {why}", "read its log, or start it: wi-agent run -c FILE")


def stranger(path: str) -> NoAgent:
    """Return the error for a program on the socket that does not answer as an agent does."""
    return NoAgent(f"the program that answers on {path} is not an agent", "name the agent's socket: --socket PATH")
