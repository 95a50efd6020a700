"""Filters aiohttp's own log lines about requests: drops those that a client can cause at will, and limits the rest."""

import logging
import time
from collections.abc import Callable

from aiohttp.http_exceptions import HttpProcessingError

MAX_LINES = 10
"""Lines in a window."""
WINDOW_SECONDS = 60.0


class Complaints(logging.Filter):
    """Drops lines about invalid requests and disconnected clients; limits the number of others in a window."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._ends = 0.0
        """When the window ends."""
        self._lines = 0
        """Logged in this window, and dropped for their number."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged. The first line of a window says how many were dropped in the one before."""
        if caused_by_client(record.exc_info[1] if record.exc_info else None):
            return False
        now = self._monotonic()
        if now >= self._ends:
            if self._lines > MAX_LINES:
                record.msg = f"{record.msg} ({self._lines - MAX_LINES} earlier lines were dropped)"
            self._ends, self._lines = now + WINDOW_SECONDS, 0
        self._lines += 1
        return self._lines <= MAX_LINES


def caused_by_client(error: object) -> bool:
    """Return whether a client causes this exception by what it sends, or by leaving."""
    if isinstance(error, RuntimeError):
        return error.args == ("Connection closed.",)  # aiohttp's StreamReader, if the connection ends while a body is awaited
    return isinstance(error, HttpProcessingError)


complaints = logging.getLogger("agent.serving")
complaints.addFilter(Complaints())
