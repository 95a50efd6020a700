"""The dialects of the endpoint, in the order in which the router tries them."""

from agent.serving.dialect import Dialect
from agent.serving.dialects.appservice import AppService
from agent.serving.dialects.azure_imds import AzureImds
from agent.serving.dialects.container import Container
from agent.serving.dialects.ecs import Ecs
from agent.serving.dialects.gce import Gce
from agent.serving.dialects.imds import Imds
from agent.serving.dialects.uri import Uri


def every() -> tuple[Dialect, ...]:
    """Return one instance of each dialect, for one endpoint."""
    return (Container(), Imds(), Gce(), AppService(), AzureImds(), Uri(), Ecs())
