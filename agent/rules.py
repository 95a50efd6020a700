"""What the structs cannot say: rules between settings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.config import Config
from agent.document import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that does not hold."""

    place: Place
    message: str
    warning: bool = False
    about: tuple[Place, ...] = ()


def findings(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Everything that the rules find."""
    del environ
    names: set[str] = set()
    for index, identity in enumerate(config.identities):
        if identity.name in names:
            yield Finding(place=("identities", index, "name"), message="the name is taken")
        names.add(identity.name)
