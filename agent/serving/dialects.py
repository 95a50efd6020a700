"""The dialects that the endpoint speaks, in the order in which a path is offered to them."""

from agent.serving.appservice import AppService
from agent.serving.azure_imds import AzureImds
from agent.serving.container import Container
from agent.serving.dialect import Dialect
from agent.serving.ecs import Ecs
from agent.serving.gce import Gce
from agent.serving.imds import Imds
from agent.serving.uri import Uri


def every() -> tuple[Dialect, ...]:
    """One of each, for one endpoint."""
    return (Container(), Imds(), Gce(), AppService(), AzureImds(), Uri(), Ecs())
