"""The configuration file: read, checked, and turned into one Config, or refused with every error at once."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from agent.config import Config
from agent.document import Broken, Document, Fault, parse
from agent.errors import ConfigError
from agent.rules import Finding, findings
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


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """The configuration in this file.

    Raises ConfigError whose message holds all errors, one in a line: `FILE:LINE: path: what is wrong, what is allowed`.
    """
    verdict = check(path, environ)
    if verdict.config is None:
        raise ConfigError("\n".join(render(path, fault) for fault in verdict.faults))
    return verdict.config


def render(path: Path, fault: Fault) -> str:
    """One line about one fault."""
    where = f"{path}:{fault.line}" if fault.line else str(path)
    return f"{where}: {fault.path}: {fault.message}" if fault.path else f"{where}: {fault.message}"


def check(path: Path, environ: Mapping[str, str]) -> Verdict:
    """The configuration in this file with all that is wrong or doubtful about it. Raises ConfigError where it cannot be read."""
    try:
        document = parse(_text(path))
    except Broken as broken:
        return Verdict(None, broken.faults, [])
    try:
        config = convert(document.data, Config)
    except msgspec.ValidationError:
        from agent.explain import explain  # noqa: PLC0415  # jsonschema: 9 MB, and only for those who err

        faults, warnings = explain(document, environ)
        return Verdict(None, faults, warnings)
    found = list(findings(config, environ))
    faults = sorted((place_fault(document, finding) for finding in found if not finding.warning), key=_order)
    warnings = sorted((place_fault(document, finding) for finding in found if finding.warning), key=_order)
    return Verdict(None if faults else config, faults, warnings)


def place_fault(document: Document, finding: Finding) -> Fault:
    """A rule's finding with its line."""
    return document.fault(finding.place, finding.message)


def _order(fault: Fault) -> tuple[int, str]:
    return fault.line, fault.path


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
