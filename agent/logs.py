"""Logs: structured, to standard error, one event a line; a filter removes whatever looks like a secret."""

import logging
import re
import sys
import threading
from typing import Any, Literal

import structlog
from structlog.typing import EventDict, WrappedLogger

from agent.errors import frames
from agent.model import Secret
from agent.sanitize import plain

Format = Literal["json", "console"]
TOKEN = re.compile(r"eyJ[\w-]{5,}\.[\w-]+\.[\w-]*|(?<=://)[^/\s]+(?=@)")
"""A JWT, or the user and password of a URL."""


def set_up(level: str = "info", form: Format = "json") -> None:
    """Configure structlog and logging, once, at the start of a command."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redact,
        *([still] if form == "console" else []),  # JSON escapes by itself
    ]
    render: Any = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[_tidy, render], keep_exc_info=True))
    logging.basicConfig(handlers=[handler], level=max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]), force=True)
    sys.excepthook = lambda _kind, error, _trace: _fallen(error)
    sys.unraisablehook = lambda fallen: _fallen(fallen.exc_value)
    threading.excepthook = lambda fallen: _fallen(fallen.exc_value)


def _fallen(error: BaseException | None) -> None:
    """Log an uncaught exception without its message, which may hold a secret."""
    structlog.get_logger().critical("exception.uncaught", error=type(error).__name__, frames=frames(error) if error else [])


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace every value that holds or resembles a token."""
    return {key: value if key.startswith("_") else _shown(value) for key, value in event.items()}


def still(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Remove the control characters that would steer a terminal."""
    return {key: plain(value) if isinstance(value, str) else value for key, value in event.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return TOKEN.sub("[redacted]", value)
    if isinstance(value, Secret | bytes):
        return "[redacted]"
    if isinstance(value, dict):
        return {_shown(key): _shown(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(inner) for inner in value]
    return value if value is None or isinstance(value, int | float) else TOKEN.sub("[redacted]", str(value))


def _tidy(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Reduce a library's record to its text and an exception's kind and place, without the exception's message."""
    record = event.pop("_record", None)
    event.pop("_from_structlog", None)
    if record is not None:
        event["logger"] = record.name
        if record.name == "asyncio":  # shows a task with its exception, a callback with its arguments
            event["event"] = re.split(r"[\n(]", event["event"], maxsplit=1)[0]
        if record.exc_info and record.exc_info[1]:
            event["error"], event["frames"] = type(record.exc_info[1]).__name__, frames(record.exc_info[1])
        record.exc_info = record.exc_text = None
    event.pop("exc_info", None)
    return event
