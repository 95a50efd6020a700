"""All that is known of a cloud: one file for each."""

from collections.abc import Mapping
from typing import assert_never

from agent.model import Paths, Provider
from agent.providers import aws, generic
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


def environment(settings: ProviderSettings, identity: str, paths: Paths) -> Mapping[str, str]:
    """The variables that make this cloud's SDKs take the identity from its files; none where no SDK can."""
    match settings:
        case GenericSettings():
            return generic.environment(settings, paths)
        case AwsSettings():
            return aws.environment(settings, identity, paths)
        case _:
            assert_never(settings)
