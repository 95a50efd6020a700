"""`run` and `once`."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable

import structlog

from agent.commands import NOT_ALL, OK, UNUSABLE
from agent.config.loading import load
from agent.config.model import Config
from agent.errors import ConfigError, frames
from agent.logs import set_up
from agent.process import harden
from agent.sanitize import lines, plain

BUG = 1


def run(options: argparse.Namespace) -> int:
    """Run the daemon: 0 after SIGTERM or SIGINT, 2 for a bad configuration, 1 for a bug."""
    harden()
    _expect_signals()
    set_up(options.log_level, options.log_format)
    from agent.app import serve  # noqa: PLC0415  # after `harden`, which must come before anything else

    def work(config: Config) -> int:
        asyncio.run(serve(options.config, config, os.environ))
        return OK

    return _guarded(options, work)


def once(options: argparse.Namespace) -> int:
    """Deliver every identity once: 0 if all were delivered, 3 if not, 2 for a bad configuration."""
    harden()
    set_up(options.log_level, options.log_format)
    from agent.app import once as deliver  # noqa: PLC0415

    def work(config: Config) -> int:
        undelivered = asyncio.run(deliver(config, os.environ, options.timeout))
        for reason in undelivered:
            print(plain(f"not delivered: {reason}"), file=sys.stderr)
        return NOT_ALL if undelivered else OK

    return _guarded(options, work)


def _expect_signals() -> None:
    """Handle signals until the daemon has its own handlers: SIGHUP and SIGUSR1 must not kill it while it starts.

    SIGTERM and SIGINT end the process at once: it has opened nothing yet, and an exception at any point would be logged as a bug.
    """
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: os._exit(OK))


def _guarded(options: argparse.Namespace, work: Callable[[Config], int]) -> int:
    try:
        return work(load(options.config, os.environ))
    except ConfigError as error:
        print(lines(str(error)), file=sys.stderr)
        return UNUSABLE
    except BaseExceptionGroup as group:
        refused = group.subgroup(ConfigError)
        if refused is not None:
            for leaf in _leaves(refused):
                print(lines(str(leaf)), file=sys.stderr)
            return UNUSABLE
        for leaf in _leaves(group):
            structlog.get_logger().critical("agent.died", error=type(leaf).__name__, frames=frames(leaf))
        return BUG
    except Exception as error:  # noqa: BLE001  # its message may hold a secret, so Python must not print it
        structlog.get_logger().critical("agent.died", error=type(error).__name__, frames=frames(error))
        return BUG


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
