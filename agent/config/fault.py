"""A fault of a configuration, and its place."""

from dataclasses import dataclass

MAX_FAULTS = 100
"""Faults of one file that are reported: a person corrects the first ones and checks it again."""
MAX_LINE_CHARACTERS = 1000
"""Of the report of one fault."""
Place = tuple[str | int, ...]
"""A place in the configuration: keys and indices from the top."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A message for a person."""

    line: int
    """From 1; 0 if the fault has no line."""
    place: Place
    """Empty for the whole file."""
    message: str

    @property
    def path(self) -> str:
        """Return the place as `identities[0].source.lifetime`."""
        return show(self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A broken rule between settings; rules do not know lines."""

    place: Place
    message: str
    warning: bool = False
    """Allowed, and probably not meant."""
    forbids: bool = False
    """The configuration forbids this identity and is good otherwise: a reload withdraws it and starts the rest."""
    other: Place | None = None
    """The place of the setting that contradicts this one."""
    rests_on: tuple[Place, ...] = ()
    """Other places that the finding was concluded from; a broken one of them makes the finding void."""


def by_line(fault: Fault) -> tuple[int, list[tuple[int, str]]]:
    """Return the sort key of a fault; on one line, as in JSON, the second identity comes before the tenth."""
    return fault.line, [(step, "") if isinstance(step, int) else (-1, step) for step in fault.place]


def show(place: Place) -> str:
    """Return `("identities", 0, "name")` as `identities[0].name`."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{_clip(step)}" if text else _clip(step)
    return text


def _clip(key: str) -> str:
    key = "".join(character if character.isprintable() else "?" for character in key)
    return key if len(key) <= 60 else f"{key[:60]}…"
