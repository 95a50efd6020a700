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
from agent.commands.control_client import NobodyThere, ask, stranger
from agent.commands.status_table import reason, render, what_to_do
from agent.sanitize import plain

SOCKET = "/run/wi-agent/agent.sock"
WRITTEN = re.compile(r"""^control:\s*(?:\{[^}\n]*?\bsocket:|\n\s+socket:)\s*["']?([^\s"',}#]+)""", re.MULTILINE)
"""Where the socket stands in a file that is no YAML any more."""
PATIENCE = 10.0
"""Seconds for an answer that nothing has to be waited for; an agent that does not give it hangs."""
PERIOD = 1.0
"""Seconds between pictures of `status --watch`."""


def _of_an_agent(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Exit 4 with a sentence, not with a traceback, where the answer has not the form of an agent's."""

    @wraps(command)
    def guarded(options: argparse.Namespace) -> int:
        try:
            return command(options)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
            return _nobody(stranger(socket_path(options)))

    return guarded


@_of_an_agent
def status(options: argparse.Namespace) -> int:
    """All identities: 0 if all are fresh, 3 if any is not, 4 where no agent answers."""
    path = socket_path(options)
    while True:
        try:
            code, found = ask(path, "GET", "/status", patience=PATIENCE)
        except NobodyThere as nobody:
            return _nobody(nobody)
        fresh = all(identity["state"] == "fresh" for identity in found["identities"]) and code == 200
        if options.json:
            print(json.dumps(found, indent=None if options.watch else 2), flush=True)
        else:
            print(_picture(found, clear=options.watch), flush=True)  # what was asked for
        if not options.watch:
            return OK if fresh else NOT_ALL
        time.sleep(PERIOD)


def _picture(found: dict[str, Any], *, clear: bool) -> str:
    """As wide as it comes for a file or a pipe; for a terminal in its width, coloured, and with `clear` in the place of the one before."""
    if not sys.stdout.isatty():
        return render(found)
    start = "\x1b[H\x1b[2J" if clear else ""
    return start + render(found, colour="NO_COLOR" not in os.environ, columns=shutil.get_terminal_size().columns)


@_of_an_agent
def renew(options: argparse.Namespace) -> int:
    """Refreshes now: 0 if all were renewed, 3 if not, 4 where no agent answers."""
    if bool(options.names) == options.all:
        print("wi-agent renew: give NAMEs, or --all", file=sys.stderr)
        return UNUSABLE
    try:
        code, found = ask(socket_path(options), "POST", "/renew", {"all": True} if options.all else {"names": options.names})
        if code != 200:
            print(plain(f"wi-agent renew: {found['error']}"), file=sys.stderr)
            return NOT_ALL
        _, after = ask(socket_path(options), "GET", "/status")
    except NobodyThere as nobody:
        return _nobody(nobody)
    said = {
        "renewed": "renewed",
        "too_recent": "renewed less than 10 s ago, left alone",
        "pending": "still trying, see wi-agent status",
        "revoked": "revoked, left alone; wi-agent renew NAME lets it run again",
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
    """Withdraws now, until `renew NAME`: 0 if it was done and written down, 3 if not, 4 where no agent answers."""
    try:
        code, found = ask(socket_path(options), "POST", "/revoke", {"names": [options.name]})
    except NobodyThere as nobody:
        return _nobody(nobody)
    if code != 200:
        print(plain(f"wi-agent revoke: {found['error']}"), file=sys.stderr)
        return NOT_ALL
    result = found["revocations"][options.name]
    said = {
        "revoked": f"revoked: wi-agent renew {options.name} lets it run again; end its sessions in the cloud, too",
        "forgotten_at_restart": "revoked, but the ledger cannot be written: a restart lets it run again; see the agent's log",
        "failed": "gone: a reload took it away",
    }
    print(plain(f"{options.name}: {said[result]}"))
    return OK if result == "revoked" else NOT_ALL


@_of_an_agent
def wait(options: argparse.Namespace) -> int:
    """Until every required identity is delivered: 0, or 3 at the time limit, or 4 where no agent answers by then."""
    until = time.monotonic() + options.timeout
    while True:
        left = max(0.0, until - time.monotonic())
        try:
            _, found = ask(socket_path(options), "GET", f"/wait?timeout={left:.3f}", patience=left + 10)
        except NobodyThere as nobody:
            if time.monotonic() + 0.1 >= until:
                return _nobody(nobody)
            time.sleep(0.1)  # an agent that is just starting
            continue
        if found["ready"]:
            return OK
        print(render(found), file=sys.stderr)
        return NOT_ALL


def socket_path(options: argparse.Namespace) -> str:
    """--socket, $WI_AGENT_SOCKET, the socket of the configuration that was named, and the usual place."""
    chosen = options.socket or os.environ.get("WI_AGENT_SOCKET")
    return chosen or (_configured(options.config) if options.explicit else None) or SOCKET


def _configured(config: Path) -> str | None:
    """`control.socket` of this file, which need not be good otherwise: somebody may just have broken it."""
    import yaml  # noqa: PLC0415  # only where a file was named

    try:
        text = config.read_text()
        data: Any = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # either is safe, the first fast
        return str(data["control"]["socket"])
    except yaml.YAMLError:
        found = WRITTEN.search(text)
        return found[1] if found else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _nobody(nobody: NobodyThere) -> int:
    print(plain(f"wi-agent: {nobody}"), file=sys.stderr)
    return NO_AGENT
