"""How the agent leaves a place it wrote to: given up for good, or let go of for somebody to take over."""

import asyncio
import os

import structlog

from agent.model import Sink

log = structlog.get_logger()

PATIENCE = 5.0
"""Seconds that a sink may take to give up what it holds."""


def whereabouts(sink: str) -> str:
    """The place that a sink's name stands for, however it is spelled: two sinks there would be in each other's way."""
    kind, _, where = sink.partition(":")
    return f"{kind}:{os.path.realpath(where)}" if kind == "files" else sink


async def withdraw(sink: Sink, *, retained: bool = True) -> None:
    """Takes away what it wrote, or all but what it retains, and lets go; raises nothing, for others have to go too."""
    try:
        async with asyncio.timeout(PATIENCE):
            await sink.withdraw(retained=retained)
    except Exception as error:  # noqa: BLE001  # whatever it is
        log.error("delivery.not_withdrawn", sink=sink.name, error=str(error) or type(error).__name__)  # noqa: TRY400
    await close(sink)


async def close(sink: Sink) -> None:
    """Lets go, and leaves what it wrote; raises nothing."""
    try:
        async with asyncio.timeout(PATIENCE):
            await sink.close()
    except Exception as error:  # noqa: BLE001  # as above
        log.warning("sink.not_closed", sink=sink.name, error=str(error) or type(error).__name__)
