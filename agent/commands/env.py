"""`env`: the variables that make SDKs use one identity, from its files or from the endpoint."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from agent.commands import OK, UNUSABLE
from agent.commands.env_formats import FORMATS
from agent.config.authorization import variable
from agent.config.loading import load
from agent.config.model import Config, Identity
from agent.dialects import DIALECTS
from agent.envvars import EnvVars, Variable
from agent.errors import ConfigError
from agent.identities.addresses import spot
from agent.identities.authorization import FILE
from agent.model import Paths
from agent.sanitize import lines


def env(options: argparse.Namespace) -> int:
    """Print the variables: 0, or 2 if the identity has none."""
    try:
        config = load(options.config, os.environ)
        identity = find(config, options.name)
        via = options.via or ("endpoint" if identity.serve.dialects or options.dialect else "files")
        variables = _from_endpoint(config, identity, options.dialect) if via == "endpoint" else _from_files(identity, options.dialect)
        text = FORMATS[options.format](variables)
    except ConfigError as error:
        print(lines(str(error)), file=sys.stderr)
        return UNUSABLE
    print(text)
    return OK


def find(config: Config, name: str) -> Identity:
    """Return the identity of this name. Raises ConfigError."""
    for identity in config.identities:
        if identity.name == name:
            return identity
    known = ", ".join(one.name for one in config.identities)
    remedy = f"name one of: {known}" if known else "add it to `identities`, which is empty"
    raise ConfigError(f"the configuration has no identity {name}", remedy=remedy)


def consumer_paths(identity: Identity) -> Paths | None:
    """Return the paths of the identity's files as its consumer sees them: those of its first sink."""
    for sink in identity.sinks:
        return Paths(directory=PurePosixPath(sink.mount_path or Path(sink.directory).absolute()), names=sink.names)
    return None


def _from_files(identity: Identity, dialect: str | None) -> EnvVars:
    if dialect:
        raise ConfigError(f"files have no dialect, and {dialect} is one", remedy="use either --dialect or --via files")
    paths = consumer_paths(identity)
    if paths is None:
        raise ConfigError(f"{identity.name} is not written to files", remedy="add a sink of type files, or use --via endpoint")
    if next(_open(identity), None):
        served = "use --via endpoint" if identity.serve.dialects else "add serve.dialects and use --via endpoint"
        raise ConfigError(
            f"{identity.name}: its ServiceAccount names the principal, and only the running agent reads ServiceAccounts",
            remedy=f"{served}, or set in the configuration what the annotation would set: it applies if the annotation is missing",
        )
    return _known(identity, identity.provider.environment(identity.name, paths))


def _open(identity: Identity) -> Iterator[str]:
    """Yield the settings of the principal that the configuration leaves to annotations."""
    provider = identity.provider
    if wanted := provider.annotations():
        for field, _ in replace(provider, from_service_account=False).faults():
            if field in wanted.values():
                yield field


def _from_endpoint(config: Config, identity: Identity, chosen: str | None) -> EnvVars:
    """Return the variables for the chosen dialect, else for the first one in the configuration."""
    if not identity.serve.dialects:
        raise ConfigError(f"{identity.name} is not served", remedy="add serve.dialects, or use --via files")
    dialect = chosen or identity.serve.dialects[0]
    if dialect not in identity.serve.dialects:
        spoken = ", ".join(identity.serve.dialects)
        raise ConfigError(f"{identity.name} is not served as {dialect}", remedy=f"choose one of: {spoken}; or add it to serve.dialects")
    authorization = _authorization(identity) if DIALECTS[dialect].authorized else ""
    return _known(identity, identity.provider.served(identity.name, spot(config, identity, dialect, authorization)))


def _authorization(identity: Identity) -> str | Variable:
    """Return the file or the variable that holds the authorization, never its text."""
    if name := variable(identity.serve.authorization or ""):
        return Variable(name)
    paths = consumer_paths(identity)
    if paths is None:
        raise ConfigError(
            f"{identity.name}: its authorization is not stored in a file",
            remedy="add a sink of type files, or set serve.authorization: ${WI_AUTHORIZATION}",
        )
    return paths.path(FILE)


def _known(identity: Identity, variables: EnvVars | None) -> EnvVars:
    if variables is None:
        tag = identity.provider.__struct_config__.tag
        raise ConfigError(
            f"{identity.name}: SDKs cannot use a token of provider {tag}", remedy="give the program the path of the token file"
        )
    return variables
