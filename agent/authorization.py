"""What a client has to present to the metadata endpoint where nobody configured it: made up once, kept beside the files."""

import secrets
from collections.abc import Sequence

import structlog

from agent.errors import RefreshError
from agent.model import Secret, Sink

log = structlog.get_logger()

FILE = "authorization"
BYTES = 32


async def shared(identity: str, sinks: Sequence[Sink]) -> Secret:
    """The one that an earlier process left in a sink, else a new one; left in all of them for the workload to read."""
    kept = None
    for sink in sinks:
        try:
            kept = kept or await sink.recall(FILE)
        except RefreshError as error:
            log.info("authorization.not_recalled", identity=identity, sink=sink.name, reason=str(error))
    text = kept or Secret(secrets.token_urlsafe(BYTES))
    for sink in sinks:
        try:
            await sink.retain(FILE, text)
        except RefreshError as error:  # the courier writes it with the first grant
            log.warning("authorization.not_written", identity=identity, sink=sink.name, error=error.message, remedy=error.remedy)
    return text
