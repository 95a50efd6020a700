"""The dialects that the endpoint speaks, in the order in which a path is offered to them."""

from agent.clock import Clock
from agent.serving.container import Container
from agent.serving.dialect import Dialect


def every(_clock: Clock) -> tuple[Dialect, ...]:
    """One of each, for one endpoint."""
    return (Container(),)
