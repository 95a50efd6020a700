"""What is left of a configuration once its broken parts are taken out, and where each of it stood before."""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from agent.config import Config
from agent.document import Document
from agent.fault import Finding, Place
from agent.settings import convert

STEP = re.compile(r"\.([^.\[\]`]+)|\[([0-9]+)\]")
"""Of msgspec's own paths: `$.identities[0].name`, with `[...]` for any key of a free mapping."""
MISSING = re.compile(r"missing required field `([^`]+)`")

STAND_INS: Mapping[str, Any] = MappingProxyType(
    {
        "name": "x",
        "source": {"type": "file", "path": "x"},
        "provider": {"type": "generic", "audiences": ["x"]},
        "subject": "x",
        "path": "x",
        "audiences": ["x"],
        "roleArn": "arn:aws:iam::000000000000:role/x",
        "region": "eu-west-1",
        "directory": "x",
        "url": "https://x.invalid",
        "listen": [],
        "state": "x",
    }
)
"""By key: what takes the place of a required setting, so that the rules see all that is around it. They conclude nothing from it."""


class Remainder:
    """A document without its broken parts."""

    def __init__(self, document: Document, broken: set[Place]) -> None:
        self._data = document.data
        self.dropped = set(broken)
        """Everything taken out, in the end also what cannot be without it."""
        self.complaints: list[tuple[Place, str]] = []
        """What only msgspec found."""
        self._stand_ins: dict[Place, Any] = {}
        self._tried: set[Place] = set()

    def convert(self) -> Config | None:
        """The configuration that is left; None where nothing can be saved."""
        while True:
            try:
                config: Config = convert(self._without(self._data, ()), Config)
            except msgspec.ValidationError as error:
                message, _, where = str(error).partition(" - at ")
                if not self._mend(message, self._place(where)):
                    return None
            else:
                return config

    def _mend(self, message: str, place: Place) -> bool:
        """Takes out what msgspec stopped at, or stands in for it; False where it makes no difference."""
        missing = MISSING.search(message)
        lacking = (*place, missing[1]) if missing else None
        if lacking in self.dropped and lacking and lacking not in self._tried and lacking[-1] in STAND_INS:
            self._tried.add(lacking)
            self._stand_ins[lacking] = STAND_INS[str(lacking[-1])]
            return True
        if self._stand_ins.pop(place, None) is not None:
            return True
        if lacking not in self.dropped:
            self.complaints.append((place, f"cannot be used: {message[:1].lower()}{message[1:]}"))
        if not place or place in self.dropped:
            return False
        self.dropped.add(place)
        return True

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
            stand_ins = {str(where[-1]): value for where, value in self._stand_ins.items() if where[:-1] == place}
            return {key: self._without(value, (*place, key)) for key, value in pairs} | stand_ins
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
