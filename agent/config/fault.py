"""What is wrong with a configuration, and where."""

from dataclasses import dataclass

MOST_FAULTS = 100
"""Of one file that are told: a person corrects the first ones and reads it again."""
LONGEST_LINE = 1000
"""Characters of what is told of one fault."""
Place = tuple[str | int, ...]
"""Where in the configuration: keys and indices from the top."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong, for a person."""

    line: int
    """From 1; 0 where it is no line's fault."""
    place: Place
    """Empty for the whole file."""
    message: str

    @property
    def path(self) -> str:
        """The place as `identities[0].source.lifetime`."""
        return show(self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule between settings that does not hold; rules know no lines."""

    place: Place
    message: str
    warning: bool = False
    """Allowed, and probably not meant."""
    forbids: bool = False
    """The configuration is good but for an identity that it forbids: a reload withdraws that one and takes up the rest."""
    other: Place | None = None
    """Where the other half of the trouble stands."""
    rests_on: tuple[Place, ...] = ()
    """What else the finding was concluded from; where that is itself broken, nothing was found."""


def by_line(fault: Fault) -> tuple[int, list[tuple[int, str]]]:
    """The order in which faults are told; on one line, as in JSON, the second identity's before the tenth's."""
    return fault.line, [(step, "") if isinstance(step, int) else (-1, step) for step in fault.place]


def show(place: Place) -> str:
    """`("identities", 0, "name")` as `identities[0].name`."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{_clip(step)}" if text else _clip(step)
    return text


def _clip(key: str) -> str:
    key = "".join(character if character.isprintable() else "?" for character in key)
    return key if len(key) <= 60 else f"{key[:60]}…"
