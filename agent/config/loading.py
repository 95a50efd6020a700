"""Reads and checks the configuration file: returns one Config, or refuses the file with every error at once."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agent.config.document import Broken, parse
from agent.config.fault import MAX_FAULTS, MAX_LINE_CHARACTERS, Fault
from agent.config.model import Config
from agent.config.rules import findings, placed
from agent.config.tenancy import resolved
from agent.errors import ConfigError
from agent.settings import convert

MAX_FILE_BYTES = 1 << 20


class Verdict(NamedTuple):
    """The result of reading a file."""

    config: Config | None
    """None if the file has faults."""
    faults: list[Fault]
    """Errors that make the file unusable, by line."""
    warnings: list[Fault]
    """Settings that are allowed and probably not meant."""


def load(path: Path, environ: Mapping[str, str], *, reload: bool = False) -> Config:
    """Return the configuration in this file; at a reload also one with identities that its tenancy forbids.

    Raises ConfigError whose message holds all errors, each in a line: `FILE:LINE: path: what is wrong, what is allowed`.
    """
    verdict = check(path, environ, reload=reload)
    if verdict.config is None:
        raise ConfigError("\n".join(told(path, verdict.faults)))
    return verdict.config


def render(path: Path, fault: Fault) -> str:
    """Return one line about one fault."""
    where = f"{path}:{fault.line}" if fault.line else str(path)
    line = f"{where}: {fault.path}: {fault.message}" if fault.path else f"{where}: {fault.message}"
    return line if len(line) <= MAX_LINE_CHARACTERS else f"{line[: MAX_LINE_CHARACTERS - 1]}…"


def told(path: Path, faults: list[Fault], most: int = MAX_FAULTS) -> list[str]:
    """Return a line for each fault, `most` at most: the last of them then says that there are more."""
    lines = [render(path, fault) for fault in faults[:most]]
    if lines and len(faults) > most:
        lines[-1] = f"{path}: there are more errors: correct these first"
    return lines


def check(path: Path, environ: Mapping[str, str], *, reload: bool = False) -> Verdict:
    """Return the configuration in this file with all faults and warnings. Raises ConfigError if the file cannot be read."""
    try:
        document = parse(_text(path))
    except Broken as broken:
        return Verdict(None, broken.faults, [])
    try:
        config = None if document.faults or not _typed(document.data) else convert(document.data, Config)
    except msgspec.ValidationError:
        config = None
    if config is None:
        from agent.config.explain import explain  # noqa: PLC0415  # jsonschema, for a bad file only

        return Verdict(None, *explain(document, environ))
    faults, warnings = placed(document, findings(config, environ), reload=reload)
    return Verdict(None if faults else resolved(config), faults, warnings)


def _typed(data: Any) -> bool:
    """Return whether every sink has a type. msgspec accepts one without as long as there is only one kind."""
    try:
        return all("type" in sink for identity in data.get("identities", []) for sink in identity.get("sinks", []))
    except (AttributeError, TypeError):
        return False


def _text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{path}: not a regular file", remedy="name a YAML file with -c")
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: the file does not exist", remedy="name the configuration file with -c or WI_AGENT_CONFIG") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: a directory, not a file", remedy="name the YAML file in it with -c") from None
    except PermissionError:
        raise ConfigError(f"{path}: permission denied", remedy=f"let uid {os.geteuid()} or one of its groups read it") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot read the file: {getattr(error, 'strerror', None) or 'not a valid file name'}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES} bytes", remedy="name a configuration file with -c")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8", remedy="save the file as UTF-8") from None
