"""What is left of a configuration once its broken parts are taken out, and where each of it stood before."""

import re
from dataclasses import replace
from typing import Any

import msgspec

from agent.config import Config
from agent.document import Document
from agent.fault import Finding, Place
from agent.settings import convert

STEP = re.compile(r"\.([^.\[\]`]+)|\[([0-9]+)\]")
"""Of msgspec's own paths: `$.identities[0].name`, with `[...]` for any key of a free mapping."""
MISSING = re.compile(r"missing required field `([^`]+)`")


class Remainder:
    """A document without its broken parts."""

    def __init__(self, document: Document, broken: set[Place]) -> None:
        self._data = document.data
        self.dropped = set(broken)
        """Everything taken out, in the end also what cannot be without it."""
        self.complaints: list[tuple[Place, str]] = []
        """What only msgspec found."""

    def convert(self) -> Config | None:
        """The configuration that is left; None where nothing can be saved."""
        while True:
            try:
                config: Config = convert(self._without(self._data, ()), Config)
            except msgspec.ValidationError as error:
                message, _, where = str(error).partition(" - at ")
                place = self._place(where)
                missing = MISSING.search(message)
                if not (missing and (*place, missing[1]) in self.dropped):
                    self.complaints.append((place, f"cannot be used: {message[:1].lower()}{message[1:]}"))
                if not place or place in self.dropped:
                    return None
                self.dropped.add(place)
            else:
                return config

    def original(self, finding: Finding) -> Finding:
        """The finding with the indices of the whole document."""
        return replace(
            finding,
            place=self._original(finding.place),
            other=self._original(finding.other) if finding.other else None,
            rests_on=tuple(self._original(place) for place in finding.rests_on),
        )

    def _without(self, data: Any, place: Place) -> Any:
        if isinstance(data, dict):
            pairs = ((key, value) for key, value in data.items() if isinstance(key, str) and (*place, key) not in self.dropped)
            return {key: self._without(value, (*place, key)) for key, value in pairs}
        if isinstance(data, list):
            return [self._without(data[index], (*place, index)) for index in self._kept(data, place)]
        return data

    def _kept(self, items: list[Any], place: Place) -> list[int]:
        return [index for index in range(len(items)) if (*place, index) not in self.dropped]

    def _place(self, where: str) -> Place:
        steps = STEP.findall(where.partition("[...]")[0])
        return self._original(tuple(key or int(index) for key, index in steps))

    def _original(self, place: Place) -> Place:
        data = self._data
        found: Place = ()
        for step in place:
            kept = self._kept(data, found) if isinstance(data, list) else []
            was = kept[step] if isinstance(step, int) and step < len(kept) else step
            found = (*found, was)
            try:
                data = data[was]
            except (KeyError, IndexError, TypeError):
                data = None
        return found
