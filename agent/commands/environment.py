"""`env`: the variables that make SDKs use one identity, one way only."""

import argparse
import os
import sys
from pathlib import Path, PurePosixPath

from agent import providers
from agent.commands import OK, UNUSABLE
from agent.commands.variables import FORMATS
from agent.config import Config, Identity
from agent.errors import ConfigError
from agent.model import Paths
from agent.reading import load


def env(options: argparse.Namespace) -> int:
    """Prints them: 0, or 2 where there are none."""
    try:
        config = load(options.config, os.environ)
        variables = _variables(config, _identity(config, options.name), options.via)
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return UNUSABLE
    print(FORMATS[options.format](variables))  # noqa: T201
    return OK


def _identity(config: Config, name: str) -> Identity:
    for identity in config.identities:
        if identity.name == name:
            return identity
    raise ConfigError(f"there is no identity {name}", remedy=f"there are: {', '.join(one.name for one in config.identities) or 'none'}")


def _variables(config: Config, identity: Identity, via: str | None) -> dict[str, str]:
    if via != "endpoint":
        if not identity.sinks:
            raise ConfigError(f"{identity.name} is written to no files", remedy="add a sink of type files")
        sink = identity.sinks[0]
        paths = Paths(directory=PurePosixPath(sink.mount_path or Path(sink.directory).absolute()), names=sink.names)
        if found := dict(providers.environment(identity.provider, identity.name, paths)):
            return found
    raise ConfigError(
        f"{identity.name}: no SDK knows a token of provider {identity.provider.__struct_config__.tag}",
        remedy="give the program the path of the token file",
    )
