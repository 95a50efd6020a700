"""`status`, `renew`, `revoke` and `wait`: ask a running agent on its control socket. No aiohttp, no SDK."""

import argparse
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from agent.commands import NO_AGENT, NOT_ALL, OK, UNUSABLE
from agent.commands.control_client import NoAgent, ask, stranger
from agent.commands.status_table import reason, render, what_to_do
from agent.sanitize import plain

SOCKET = "/run/wi-agent/agent.sock"
SOCKET_PATTERN = re.compile(r"""^control:\s*(?:\{[^}\n]*?\bsocket:|\n\s+socket:)\s*["']?([^\s"',}#]+)""", re.MULTILINE)
"""`control.socket` in a file that is not valid YAML."""
STATUS_TIMEOUT_SECONDS = 10.0
"""The agent answers `status` at once; one that takes longer hangs."""
WATCH_SECONDS = 1.0
"""Between tables of `status --watch`."""


def _of_an_agent(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Exit 4 with a message, not with a traceback, if the answer has another form than an agent's."""

    @wraps(command)
    def guarded(options: argparse.Namespace) -> int:
        try:
            return command(options)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
            return _absent(stranger(socket_path(options)))

    return guarded


@_of_an_agent
def status(options: argparse.Namespace) -> int:
    """Print all identities: 0 if all are fresh, 3 if any is not, 4 if no agent answers."""
    path = socket_path(options)
    while True:
        try:
            code, found = ask(path, "GET", "/status", timeout=STATUS_TIMEOUT_SECONDS)
        except NoAgent as absent:
            return _absent(absent)
        fresh = all(identity["state"] == "fresh" for identity in found["identities"]) and code == 200
        if options.json:
            print(json.dumps(found, indent=None if options.watch else 2), flush=True)
        else:
            print(_table(found, clear=options.watch), flush=True)  # the output of the command
        if not options.watch:
            return OK if fresh else NOT_ALL
        time.sleep(WATCH_SECONDS)


def _table(found: dict[str, Any], *, clear: bool) -> str:
    """Return the table: unlimited in width unless for a terminal, where it is coloured and with `clear` replaces the last."""
    if not sys.stdout.isatty():
        return render(found)
    start = "\x1b[H\x1b[2J" if clear else ""
    return start + render(found, colour="NO_COLOR" not in os.environ, columns=shutil.get_terminal_size().columns)


@_of_an_agent
def renew(options: argparse.Namespace) -> int:
    """Refresh now: 0 if all identities were renewed, 3 if not, 4 if no agent answers."""
    if bool(options.names) == options.all:
        print("wi-agent renew: name identities, or use --all", file=sys.stderr)
        return UNUSABLE
    try:
        code, found = ask(socket_path(options), "POST", "/renew", {"all": True} if options.all else {"names": options.names})
        if code != 200:
            print(plain(f"wi-agent renew: {found['error']}"), file=sys.stderr)
            return NOT_ALL
        _, after = ask(socket_path(options), "GET", "/status")
    except NoAgent as absent:
        return _absent(absent)
    said = {
        "renewed": "renewed",
        "too_recent": "not renewed: the last renewal was less than 10 s ago",
        "pending": "the agent is still trying: see wi-agent status",
        "revoked": "not renewed: revoked; start it again with wi-agent renew NAME",
        "failed": "failed",
    }
    failures = {identity["name"]: identity["failure"] for identity in after["identities"]}
    for name, result in found["renewals"].items():
        failure = failures.get(name)
        remedy = what_to_do(name, failure) if failure else ""
        why = f": {reason(name, failure)}{f' ({remedy})' if remedy else ''}" if result == "failed" and failure else ""
        print(plain(f"{name}: {said[result]}{why}"))
    return OK if all(result == "renewed" for result in found["renewals"].values()) else NOT_ALL


@_of_an_agent
def revoke(options: argparse.Namespace) -> int:
    """Withdraw now, until `renew NAME`: 0 if the identity is withdrawn and the ledger written, 3 if not, 4 if no agent answers."""
    try:
        code, found = ask(socket_path(options), "POST", "/revoke", {"names": [options.name]})
    except NoAgent as absent:
        return _absent(absent)
    if code != 200:
        print(plain(f"wi-agent revoke: {found['error']}"), file=sys.stderr)
        return NOT_ALL
    result = found["revocations"][options.name]
    said = {
        "revoked": f"revoked: end its sessions in the cloud, too; start it again with wi-agent renew {options.name}",
        "forgotten_at_restart": "revoked, but the agent cannot write the ledger, so a restart starts it again: see the agent's log",
        "failed": "not revoked: a reload removed it",
    }
    print(plain(f"{options.name}: {said[result]}"))
    return OK if result == "revoked" else NOT_ALL


@_of_an_agent
def wait(options: argparse.Namespace) -> int:
    """Wait until every required identity is delivered: 0, or 3 after the timeout, or 4 if no agent answers by then."""
    until = time.monotonic() + options.timeout
    while True:
        left = max(0.0, until - time.monotonic())
        try:
            _, found = ask(socket_path(options), "GET", f"/wait?timeout={left:.3f}", timeout=left + 10)
        except NoAgent as absent:
            if time.monotonic() + 0.1 >= until:
                return _absent(absent)
            time.sleep(0.1)  # the agent may be starting
            continue
        if found["ready"]:
            return OK
        print(render(found), file=sys.stderr)
        return NOT_ALL


def socket_path(options: argparse.Namespace) -> str:
    """Return the first of --socket, $WI_AGENT_SOCKET, the socket of the named configuration, and the default path."""
    chosen = options.socket or os.environ.get("WI_AGENT_SOCKET")
    return chosen or (_configured(options.config) if options.explicit else None) or SOCKET


def _configured(config: Path) -> str | None:
    """Return `control.socket` of this file, even if the file is otherwise invalid: an edit may just have broken it."""
    import yaml  # noqa: PLC0415  # only if a file was named

    try:
        text = config.read_text()
        data: Any = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # either is safe, the first fast
        return str(data["control"]["socket"])
    except yaml.YAMLError:
        found = SOCKET_PATTERN.search(text)
        return found[1] if found else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _absent(absent: NoAgent) -> int:
    print(plain(f"wi-agent: {absent}"), file=sys.stderr)
    return NO_AGENT
