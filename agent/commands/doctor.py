"""`doctor`: checks every link of an identity, and prints where one is broken and what to type."""

import argparse
import asyncio
import os
import sys

from agent.clock import WallClock
from agent.commands import NOT_ALL, OK, UNUSABLE
from agent.commands.control_client import NoAgent, ask, stranger
from agent.commands.env import find
from agent.config.loading import load
from agent.config.model import Config
from agent.doctor.case import View
from agent.doctor.report import render
from agent.doctor.walk import examine
from agent.errors import ConfigError
from agent.identities.addresses import base_url
from agent.logs import set_up
from agent.process import harden
from agent.sanitize import lines

STATUS_TIMEOUT_SECONDS = 5.0
"""For the running agent's own view."""


def doctor(options: argparse.Namespace) -> int:
    """Check all identities, or the named one: 0 if every link holds, 3 if one is broken, 2 for a bad configuration."""
    harden()
    set_up(options.log_level, options.log_format)
    try:
        config = load(options.config, os.environ)
        identities = [find(config, options.name)] if options.name else list(config.identities)
    except ConfigError as error:
        print(lines(str(error)), file=sys.stderr)
        return UNUSABLE
    view = _view(options.socket or os.environ.get("WI_AGENT_SOCKET") or config.control.socket)
    sheets = asyncio.run(examine(config, identities, environ=os.environ, view=view, base=_base(config), clock=WallClock()))
    print(render(sheets))
    return OK if all(sheet.sound for sheet in sheets) else NOT_ALL


def _view(path: str) -> View:
    try:
        code, status = ask(path, "GET", "/status", timeout=STATUS_TIMEOUT_SECONDS)
    except NoAgent as absent:
        return View(socket=path, status=None, absence=absent.message, remedy=absent.remedy)
    if code != 200 or not isinstance(status.get("identities"), list):
        other = stranger(path)
        return View(socket=path, status=None, absence=other.message, remedy=other.remedy)
    return View(socket=path, status=status)


def _base(config: Config) -> str:
    try:
        return base_url(config)
    except ConfigError:
        return ""
