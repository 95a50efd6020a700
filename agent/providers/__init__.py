"""The providers: one package for each cloud, and `generic` for none."""

from typing import assert_never

from agent.model import Provider
from agent.providers.alibaba.provider import AlibabaProvider
from agent.providers.alibaba.settings import AlibabaSettings
from agent.providers.aws.provider import AwsProvider
from agent.providers.aws.settings import AwsSettings
from agent.providers.azure.provider import AzureProvider
from agent.providers.azure.settings import AzureSettings
from agent.providers.gcp.provider import GcpProvider
from agent.providers.gcp.settings import GcpSettings
from agent.providers.generic import GenericProvider, GenericSettings
from agent.toolbox import Toolbox

ProviderSettings = GenericSettings | AwsSettings | AzureSettings | GcpSettings | AlibabaSettings


def build(settings: ProviderSettings, identity: str, toolbox: Toolbox) -> Provider:
    """Return the provider that these settings describe."""
    match settings:
        case GenericSettings():
            return GenericProvider(settings, identity, toolbox)
        case AwsSettings():
            return AwsProvider(settings, identity, toolbox)
        case AzureSettings():
            return AzureProvider(settings, identity, toolbox)
        case GcpSettings():
            return GcpProvider(settings, identity, toolbox)
        case AlibabaSettings():
            return AlibabaProvider(settings, identity, toolbox)
        case _:
            assert_never(settings)
