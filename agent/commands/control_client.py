"""HTTP over the control socket with the standard library alone, so that a client command starts in a blink."""

import http.client
import json
import socket
import threading
from contextlib import suppress
from typing import Any

from agent.parsing import json_object

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""The status of ten thousand identities takes less."""


class NobodyThere(Exception):  # noqa: N818  # a finding
    """No agent answers on the socket; `remedy` says what to do about it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")
        self.message = message
        self.remedy = remedy


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("agent", timeout=timeout)
        self.late = False
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def connect(self) -> None:
        self.sock = self._socket
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def close(self) -> None:
        """Close the socket too, which http.client lets go of before the answer was read."""
        super().close()
        self._socket.close()

    def expire(self) -> None:
        """End whatever is sent or awaited; for another thread."""
        self.late = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def ask(path: str, method: str, route: str, body: Any = None, *, patience: float = 75.0) -> tuple[int, dict[str, Any]]:
    """Status code and answer, within so many seconds in all. Raises NobodyThere."""
    connection = _Connection(path, patience)
    alarm = threading.Timer(patience, connection.expire)
    alarm.daemon = True
    alarm.start()
    try:
        connection.request(method, route, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read(MAX_ANSWER_BYTES + 1)
    except PermissionError:
        raise NobodyThere(f"may not use the socket {path}", "run as the agent's user (the socket's owner) or as root") from None
    except FileNotFoundError:
        raise NobodyThere(
            f"no agent: there is no socket {path}", "start it: wi-agent run -c FILE; or say where it listens: --socket PATH"
        ) from None
    except ConnectionRefusedError:
        raise NobodyThere(f"no agent: the program that listened on {path} has died", "start it: wi-agent run -c FILE") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _silent(path, "timed out" if connection.late else str(error) or type(error).__name__) from None
    finally:
        alarm.cancel()
        connection.close()
    if connection.late:
        raise _silent(path, "timed out")
    answer = json_object(text, longest=MAX_ANSWER_BYTES)
    if answer is None:
        raise stranger(path)
    return response.status, answer


def _silent(path: str, why: str) -> NobodyThere:
    return NobodyThere(f"no agent answers on {path}: {why}", "look at its log, or start it: wi-agent run -c FILE")


def stranger(path: str) -> NobodyThere:
    """Return what to say of a program on the socket that answers otherwise than an agent."""
    return NobodyThere(f"the program that answers on {path} is not an agent", "say where the agent listens: --socket PATH")
