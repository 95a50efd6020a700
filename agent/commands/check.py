"""`check` and `schema`: the configuration, without an agent."""

import argparse
import json
import os
import sys

from agent.commands import OK, UNUSABLE
from agent.config.fault import MAX_FAULTS
from agent.config.loading import check as examine
from agent.config.loading import told
from agent.errors import ConfigError
from agent.sanitize import lines, plain


def check(options: argparse.Namespace) -> int:
    """Print every error and warning, each with its line: 0 if the configuration is good, 2 if not."""
    try:
        verdict = examine(options.config, os.environ)
    except ConfigError as error:
        print(lines(str(error)), file=sys.stderr)
        return UNUSABLE
    faults = told(options.config, verdict.faults)
    for warning in told(options.config, verdict.warnings, MAX_FAULTS - len(faults)):
        print(plain(f"warning: {warning}"), file=sys.stderr)
    for fault in faults:
        print(plain(fault), file=sys.stderr)
    if verdict.config is None:
        return UNUSABLE
    print(f"{options.config}: good, {_counted(len(verdict.config.identities))}")
    return OK


def schema(_options: argparse.Namespace) -> int:
    """Print the JSON Schema of the configuration."""
    from agent.config.schema import schema as describe  # noqa: PLC0415

    print(json.dumps(describe(), indent=2))
    return OK


def _counted(identities: int) -> str:
    return "1 identity" if identities == 1 else f"{identities} identities"
