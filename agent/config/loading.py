"""The configuration file: read, checked, and turned into one Config, or refused with every error at once."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agent.config.document import Broken, parse
from agent.config.fault import LONGEST_LINE, MOST_FAULTS, Fault
from agent.config.model import Config
from agent.config.rules import findings, placed
from agent.config.tenancy import resolved
from agent.errors import ConfigError
from agent.settings import convert

LONGEST = 1 << 20
"""Bytes of a configuration file."""


class Verdict(NamedTuple):
    """What came of reading a file."""

    config: Config | None
    """None where there are faults."""
    faults: list[Fault]
    """What makes the file unusable, by line."""
    warnings: list[Fault]
    """What is allowed and probably not meant."""


def load(path: Path, environ: Mapping[str, str], *, reload: bool = False) -> Config:
    """The configuration in this file; at a reload also one with identities that its tenancy forbids.

    Raises ConfigError whose message holds all errors, one in a line: `FILE:LINE: path: what is wrong, what is allowed`.
    """
    verdict = check(path, environ, reload=reload)
    if verdict.config is None:
        raise ConfigError("\n".join(told(path, verdict.faults)))
    return verdict.config


def render(path: Path, fault: Fault) -> str:
    """One line about one fault."""
    where = f"{path}:{fault.line}" if fault.line else str(path)
    line = f"{where}: {fault.path}: {fault.message}" if fault.path else f"{where}: {fault.message}"
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def told(path: Path, faults: list[Fault], most: int = MOST_FAULTS) -> list[str]:
    """Return a line for each fault, so many lines at most: the last one says that there are more."""
    lines = [render(path, fault) for fault in faults[:most]]
    if lines and len(faults) > most:
        lines[-1] = f"{path}: and more: correct these first"
    return lines


def check(path: Path, environ: Mapping[str, str], *, reload: bool = False) -> Verdict:
    """The configuration in this file with all that is wrong or doubtful about it. Raises ConfigError where it cannot be read."""
    try:
        document = parse(_text(path))
    except Broken as broken:
        return Verdict(None, broken.faults, [])
    try:
        config = None if document.faults or not _typed(document.data) else convert(document.data, Config)
    except msgspec.ValidationError:
        config = None
    if config is None:
        from agent.config.explain import explain  # noqa: PLC0415  # jsonschema, only for those who err

        return Verdict(None, *explain(document, environ))
    faults, warnings = placed(document, findings(config, environ), reload=reload)
    return Verdict(None if faults else resolved(config), faults, warnings)


def _typed(data: Any) -> bool:
    """Whether every sink says its type. msgspec lets it pass unsaid as long as there is only one kind."""
    try:
        return all("type" in sink for identity in data.get("identities", []) for sink in identity.get("sinks", []))
    except (AttributeError, TypeError):
        return False


def _text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{path}: this is not a regular file", remedy="name a YAML file with -c")
            data = file.read(LONGEST + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file", remedy="name the configuration file with -c or WI_AGENT_CONFIG") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: this is a directory", remedy="name the YAML file in it with -c") from None
    except PermissionError:
        raise ConfigError(f"{path}: may not be read", remedy=f"let uid {os.geteuid()} or one of its groups read it") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'no usable file name'}") from None
    if len(data) > LONGEST:
        raise ConfigError(f"{path}: longer than {LONGEST} bytes", remedy="this is no configuration: check -c")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8", remedy="save the file as UTF-8") from None
