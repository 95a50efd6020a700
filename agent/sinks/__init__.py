"""Grants out: one file for each kind of sink."""

from agent.model import Sink
from agent.sinks.files.sink import FilesSettings, FilesSink
from agent.toolbox import Toolbox

SinkSettings = FilesSettings


def build(settings: SinkSettings, identity: str, digest: str, toolbox: Toolbox) -> Sink:
    """The sink that these settings describe. `digest` is the identity's: only its own generations are adopted."""
    return FilesSink(settings, identity, digest, toolbox)
