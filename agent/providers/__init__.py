"""All that is known of a cloud: one file for each."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import assert_never

from agent.envvars import EnvVars, ServedAt
from agent.model import Paths, Provider
from agent.providers.alibaba import provider
from agent.providers.alibaba.provider import AlibabaProvider, AlibabaSettings
from agent.providers.aws import provider as aws
from agent.providers.aws.facts import facts as facts_of_aws
from agent.providers.aws.provider import AwsProvider, AwsSettings
from agent.providers.azure import provider as azure
from agent.providers.azure.environment import served as served_by_azure
from agent.providers.azure.provider import AzureProvider, AzureSettings
from agent.providers.gcp import provider as gcp
from agent.providers.gcp.environment import from_endpoint as served_by_gcp
from agent.providers.gcp.provider import GcpProvider, GcpSettings
from agent.providers.generic import GenericProvider, GenericSettings
from agent.toolbox import Toolbox

ProviderSettings = GenericSettings | AwsSettings | AzureSettings | GcpSettings | AlibabaSettings


def build(settings: ProviderSettings, identity: str, toolbox: Toolbox) -> Provider:
    """The provider that these settings describe."""
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


def faults(settings: ProviderSettings) -> Iterator[tuple[str, str]]:
    """What is wrong between a provider's settings: the field, and what is allowed."""
    match settings:
        case GenericSettings():
            return iter(())
        case AwsSettings():
            return aws.faults(settings)
        case AzureSettings():
            return azure.faults(settings)
        case GcpSettings():
            return gcp.faults(settings)
        case AlibabaSettings():
            return provider.faults(settings)
        case _:
            assert_never(settings)


def annotations(settings: ProviderSettings) -> Mapping[str, str]:
    """What the annotations of a ServiceAccount say, by their names: keys of the settings; nothing where none is heeded."""
    match settings:
        case GenericSettings():
            return {}
        case AwsSettings():
            return aws.ANNOTATIONS if settings.from_service_account else {}
        case AzureSettings():
            return azure.ANNOTATIONS if settings.from_service_account else {}
        case GcpSettings():
            return gcp.ANNOTATIONS if settings.from_service_account else {}
        case AlibabaSettings():
            return provider.ANNOTATIONS if settings.from_service_account else {}
        case _:
            assert_never(settings)


def annotated(settings: ProviderSettings, text: str) -> str:
    """What an annotation's text stands for."""
    return provider.annotated(settings, text) if isinstance(settings, AlibabaSettings) else text


def environment(settings: ProviderSettings, identity: str, paths: Paths) -> EnvVars | None:
    """What makes this cloud's SDKs take the identity from its files; None where no SDK can."""
    match settings:
        case GenericSettings():
            return None
        case AwsSettings():
            return aws.environment(settings, identity, paths)
        case AzureSettings():
            return azure.environment(settings, identity, paths)
        case GcpSettings():
            return gcp.environment(settings, identity, paths)
        case AlibabaSettings():
            return provider.environment(settings, identity, paths)
        case _:
            assert_never(settings)


def served(settings: ProviderSettings, identity: str, spot: ServedAt) -> EnvVars | None:
    """What makes this cloud's SDKs ask the endpoint in the spot's dialect; None where no SDK can."""
    match settings:
        case GenericSettings():
            return None
        case AwsSettings():
            return aws.served(settings, identity, spot)
        case AzureSettings():
            return served_by_azure(spot, identity)
        case GcpSettings():
            return served_by_gcp(spot)
        case AlibabaSettings():
            return provider.served(settings, identity, spot)
        case _:
            assert_never(settings)


def trust(settings: ProviderSettings, *, issuer: str, subject: str, claims: Collection[str] = ()) -> Sequence[str]:
    """What to type on the cloud's side so that it believes tokens of this issuer and subject; nothing where nobody has to.

    `claims`: names of those that the token carries besides the registered ones.
    """
    match settings:
        case GenericSettings():
            return ()
        case AwsSettings():
            return aws.trust_of(settings, issuer=issuer, subject=subject, claims=claims).lines()
        case AzureSettings():
            return azure.trust_of(settings, issuer=issuer, subject=subject).lines()
        case GcpSettings():
            return gcp.trust_of(settings, issuer=issuer, subject=subject).lines()
        case AlibabaSettings():
            return provider.trust_of(settings, issuer=issuer, subject=subject).lines()
        case _:
            assert_never(settings)


def variants(settings: ProviderSettings) -> Sequence[str]:
    """What is kept fresh beside the identity's own credential, whether somebody asks for it or not."""
    match settings:
        case GenericSettings() | AwsSettings() | GcpSettings() | AlibabaSettings():
            return ()
        case AzureSettings():
            return azure.variants(settings)
        case _:
            assert_never(settings)


def facts(settings: ProviderSettings) -> Mapping[str, str]:
    """What this cloud's metadata dialects can say of the identity beside its credential; nothing secret."""
    match settings:
        case GenericSettings():
            return {}
        case AwsSettings():
            return facts_of_aws(settings.roles[-1], settings.region)
        case AzureSettings():
            return azure.facts(settings)
        case GcpSettings():
            return gcp.facts(settings)
        case AlibabaSettings():
            return provider.facts(settings)
        case _:
            assert_never(settings)
