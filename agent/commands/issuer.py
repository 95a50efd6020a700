"""`issuer export`: writes the issuer's documents for static hosting."""

import argparse
import asyncio
import os
import sys

from agent.clock import WallClock
from agent.commands import OK, UNUSABLE
from agent.config.loading import load
from agent.errors import ConfigError, RefreshError
from agent.process import harden
from agent.sanitize import lines


def export(options: argparse.Namespace) -> int:
    """Write discovery document and keys below DIR: 0, or 2 if that fails."""
    harden()
    from agent.issuer.discovery import export as write  # noqa: PLC0415  # after `harden`, which must come before any key is read

    try:
        config = load(options.config, os.environ)
        if config.issuer is None:
            raise ConfigError(f"{options.config} has no issuer", remedy="add an `issuer:` block at the top of the file")  # noqa: TRY301
        exported = asyncio.run(write(config.issuer, options.directory, WallClock()))
    except (ConfigError, RefreshError, OSError) as error:
        print(lines(str(error)), file=sys.stderr)
        return UNUSABLE
    for file in exported.files:
        print(file)
    print(f"export again before {exported.complete_until:%Y-%m-%dT%H:%M:%SZ}", file=sys.stderr)
    return OK
