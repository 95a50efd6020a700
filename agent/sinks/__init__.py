"""Sinks: one package for each kind."""

import os

from agent.model import Location, Sink
from agent.sinks.files.sink import FilesSettings, FilesSink
from agent.toolbox import Toolbox

SinkSettings = FilesSettings


def build(settings: SinkSettings, identity: str, digest: str, toolbox: Toolbox) -> Sink:
    """Return the sink that these settings describe. `digest` is the identity's: the sink adopts no generation of another."""
    return FilesSink(settings, identity, digest, toolbox)


def canonical(location: Location) -> Location:
    """Return the location as its kind compares it, symlinks resolved: two sinks there would overwrite each other."""
    return Location("files", os.path.realpath(location.place)) if location.kind == "files" else location
