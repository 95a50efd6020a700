"""Identity tokens in: one file for each kind of source."""

from typing import assert_never

from agent.model import Source
from agent.sources.file import FileSettings, FileSource
from agent.sources.issuer import IssuerSettings, IssuerSource
from agent.sources.kubernetes import KubernetesSettings, KubernetesSource
from agent.toolbox import Toolbox

SourceSettings = IssuerSettings | FileSettings | KubernetesSettings


def build(settings: SourceSettings, identity: str, toolbox: Toolbox) -> Source:
    """Return the source that these settings describe."""
    match settings:
        case IssuerSettings():
            return IssuerSource(settings, identity, toolbox)
        case FileSettings():
            return FileSource(settings, identity, toolbox)
        case KubernetesSettings():
            return KubernetesSource(settings, identity, toolbox)
        case _:
            assert_never(settings)
