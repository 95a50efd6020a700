"""All that is known of a cloud: one file for each."""

from typing import assert_never

from agent.model import Provider
from agent.providers.aws import AwsProvider, AwsSettings
from agent.providers.generic import GenericProvider, GenericSettings
from agent.toolbox import Toolbox

ProviderSettings = GenericSettings | AwsSettings


def build(settings: ProviderSettings, identity: str, toolbox: Toolbox) -> Provider:
    """The provider that these settings describe."""
    match settings:
        case GenericSettings():
            return GenericProvider(settings, identity, toolbox)
        case AwsSettings():
            return AwsProvider(settings, identity, toolbox)
        case _:
            assert_never(settings)
