"""The dialects that the endpoint speaks, in the order in which a path is offered to them."""

from agent.serving.dialect import Dialect
from agent.serving.dialects.appservice import AppService
from agent.serving.dialects.azure_imds import AzureImds
from agent.serving.dialects.container import Container
from agent.serving.dialects.ecs import Ecs
from agent.serving.dialects.gce import Gce
from agent.serving.dialects.imds import Imds
from agent.serving.dialects.uri import Uri


def every() -> tuple[Dialect, ...]:
    """One of each, for one endpoint."""
    return (Container(), Imds(), Gce(), AppService(), AzureImds(), Uri(), Ecs())
