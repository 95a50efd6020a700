"""How the agent leaves a location that it wrote to: withdraw the files there, or close it and leave them."""

import asyncio

import structlog

from agent.model import KeepsSecrets, Sink

log = structlog.get_logger()

WITHDRAWAL_TIMEOUT_SECONDS = 5.0


async def withdraw(sink: Sink, *, secrets: bool = True) -> None:
    """Withdraw everything that the sink wrote, and close it; log a failure, so that the other sinks are withdrawn too.

    `secrets` False leaves the secrets that the sink retains: the identity is expected back.
    """
    try:
        async with asyncio.timeout(WITHDRAWAL_TIMEOUT_SECONDS):
            await (sink.withdraw_all() if secrets and isinstance(sink, KeepsSecrets) else sink.withdraw())
    except Exception as error:  # noqa: BLE001  # a sink may raise anything
        log.error("delivery.not_withdrawn", sink=sink.name, error=str(error) or type(error).__name__)  # noqa: TRY400
    await close(sink)


async def close(sink: Sink) -> None:
    """Close the sink and leave what it wrote; log a failure."""
    try:
        async with asyncio.timeout(WITHDRAWAL_TIMEOUT_SECONDS):
            await sink.close()
    except Exception as error:  # noqa: BLE001  # as above
        log.warning("sink.not_closed", sink=sink.name, error=str(error) or type(error).__name__)
