"""The command line: its commands and options, and the function of each command.

Commands are imported when they are chosen: `status` loads neither aiohttp nor any SDK.
"""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from agent import __version__

DEFAULT_CONFIG = "/etc/wi-agent/config.yaml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(arguments)
    options.explicit = bool(options.config or os.environ.get("WI_AGENT_CONFIG"))
    options.config = Path(options.config or os.environ.get("WI_AGENT_CONFIG") or DEFAULT_CONFIG)
    module, function = options.command
    if module == "daemon":
        gc.disable()  # imports leave next to no garbage, and searching for it takes 60 ms; `app` enables it again
    command: Callable[[argparse.Namespace], int] = getattr(import_module(f"agent.commands.{module}"), function)
    try:
        return command(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _parser() -> argparse.ArgumentParser:
    everywhere = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    _everywhere(everywhere)
    parser = argparse.ArgumentParser(
        prog="wi-agent", description="Keeps short-lived cloud credentials of workloads fresh, in files and on a metadata endpoint."
    )
    parser.add_argument("--version", action="version", version=f"wi-agent {__version__}")
    parser.set_defaults(config=None, socket=None, log_level="info", log_format="json")
    _everywhere(parser, default=argparse.SUPPRESS)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, module: str, function: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", parents=[everywhere])
        command.set_defaults(command=(module, function))
        return command

    add("run", "daemon", "run", "run the daemon")
    one = add("once", "daemon", "once", "deliver every identity once, then exit: for init containers, Jobs and cron")
    one.add_argument("--timeout", type=_seconds, default=60.0, metavar="S", help="timeout in seconds (60)")
    add("check", "check", "check", "check the configuration and print every error with its line")
    add("schema", "check", "schema", "print the JSON Schema of the configuration")
    status = add("status", "client", "status", "show the state, age and expiry of every identity")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.add_argument("--watch", action="store_true", help="repeat every second until interrupted")
    renew = add("renew", "client", "renew", "refresh identities now")
    renew.add_argument("names", nargs="*", metavar="NAME", help="identities to refresh")
    renew.add_argument("--all", action="store_true", help="refresh all identities")
    revoke = add("revoke", "client", "revoke", "withdraw an identity now, until it is renewed by name")
    revoke.add_argument("name", metavar="NAME", help="identity to withdraw")
    wait = add("wait", "client", "wait", "wait until every required identity is delivered")
    wait.add_argument("--timeout", type=_seconds, default=60.0, metavar="S", help="timeout in seconds (60)")
    doctor = add(
        "doctor",
        "doctor",
        "doctor",
        "check every link from source to endpoint; print what is broken, what to type, and the trust policy for the cloud",
    )
    doctor.add_argument("name", nargs="?", metavar="NAME", help="check this identity only")
    env = add("env", "env", "env", "print the environment variables that make SDKs use an identity")
    env.add_argument("name", metavar="NAME", help="identity to use")
    env.add_argument("--via", choices=("endpoint", "files"), help="default: the endpoint if it serves the identity, else files")
    env.add_argument("--dialect", metavar="DIALECT", help="dialect of the endpoint (default: the first of serve.dialects)")
    env.add_argument("--format", choices=("shell", "dotenv", "yaml"), default="shell", help="default: shell")
    _issuer(commands, everywhere)
    return parser


def _issuer(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    issuer = commands.add_parser("issuer", help="export the documents of the embedded issuer", parents=[everywhere])
    actions = issuer.add_subparsers(metavar="ACTION", required=True)
    export = actions.add_parser("export", help="write discovery document and keys for static hosting", parents=[everywhere])
    export.add_argument("directory", metavar="DIR", type=Path)
    export.set_defaults(command=("issuer", "export"))


def _everywhere(parser: argparse.ArgumentParser, default: Any = argparse.SUPPRESS) -> None:
    parser.add_argument(
        "-c", "--config", metavar="FILE", default=default, help=f"configuration file (default: $WI_AGENT_CONFIG, else {DEFAULT_CONFIG})"
    )
    parser.add_argument(
        "--socket",
        metavar="PATH",
        default=default,
        help="control socket (default: $WI_AGENT_SOCKET, else control.socket of the named configuration, else /run/wi-agent/agent.sock)",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default=default, help="default: info")
    parser.add_argument("--log-format", choices=("json", "console"), default=default, help="default: json")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value
