"""The part of a configuration that is left without its broken parts, and the original place of each setting."""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from agent.config.document import Document
from agent.config.fault import Finding, Place
from agent.config.model import Config
from agent.settings import convert

STEP = re.compile(r"\.([^.\[\]`]+)|\[([0-9]+)\]")
"""One step of msgspec's paths: `$.identities[0].name`, with `[...]` for any key of a free mapping."""
MISSING = re.compile(r"missing required field `([^`]+)`")
MAX_CONVERSIONS = 64
"""msgspec stops at the first error; few errors are found by msgspec only."""
STAND_INS: Mapping[str, Any] = MappingProxyType(
    {
        "identities": [],
        "name": "x",
        "source": {"type": "file", "path": "x"},
        "provider": {"type": "generic", "audiences": ["x"]},
        "subject": "x",
        "path": "x",
        "serviceAccount": {"namespace": "x", "name": "x"},
        "namespace": "x",
        "kind": "Pod",
        "audiences": ["x"],
        "roleArn": "arn:aws:iam::000000000000:role/x",
        "alibaba.roleArn": "acs:ram::00000:role/x",
        "oidcProviderArn": "acs:ram::00000:oidc-provider/x",
        "region": "eu-west-1",
        "tenantId": "00000000-0000-0000-0000-000000000000",
        "clientId": "00000000-0000-0000-0000-000000000000",
        "directory": "x",
        "url": "https://x.invalid",
        "listen": [],
        "state": "x",
    }
)
"""Replacements of broken required settings, by key or by type and key, so that rules see the settings around them; no rule concludes
from them."""


class Remainder:
    """A document without its broken parts."""

    def __init__(self, document: Document, unwanted: set[Place], broken: set[Place]) -> None:
        self._data = document.data
        self.dropped = unwanted | broken
        """Every part that was taken out, in the end also the parts that depend on one."""
        self.complaints: list[tuple[Place, str]] = []
        """Errors that only msgspec found."""
        self._indices: dict[Place, list[int]] = {}
        """The kept indices of each list that was searched since the last part was taken out."""
        self._stand_ins: dict[Place, dict[str, Any]] = {}
        """By the block that holds them."""
        for place in broken:
            key = str(place[-1])
            if key in STAND_INS:
                self._stand_ins.setdefault(place[:-1], {})[key] = self._stand_in(place[:-1], key)

    def convert(self) -> Config | None:
        """Return the configuration that is left; None if no part is usable."""
        for _ in range(MAX_CONVERSIONS):
            try:
                config: Config = convert(self._without(self._data, ()), Config)
            except msgspec.ValidationError as error:
                message, _, where = str(error).partition(" - at ")
                place = self._place(where)
                if not place or place in self.dropped:
                    break
                missing = MISSING.search(message)
                if not missing or (*place, missing[1]) not in self.dropped:
                    self.complaints.append((place, f"cannot use this value: {message[:1].lower()}{message[1:]}"))
                self.dropped.add(place)
                self._indices.clear()
            else:
                return config
        return None

    def original(self, finding: Finding) -> Finding:
        """Return the finding with the indices of the whole document."""
        return replace(
            finding,
            place=self._original(finding.place),
            other=self._original(finding.other) if finding.other else None,
            rests_on=tuple(self._original(place) for place in finding.rests_on),
        )

    def _stand_in(self, block: Place, key: str) -> Any:
        """Return the replacement of a key: the one of the block's type, if that type has a form of its own."""
        data = self._data
        for step in block:
            data = data[step]
        kind = data.get("type") if isinstance(data, dict) else None
        return STAND_INS.get(f"{kind}.{key}", STAND_INS[key])

    def _without(self, data: Any, place: Place) -> Any:
        if isinstance(data, dict):
            pairs = ((key, value) for key, value in data.items() if isinstance(key, str) and (*place, key) not in self.dropped)
            return {key: self._without(value, (*place, key)) for key, value in pairs} | self._stand_ins.get(place, {})
        if isinstance(data, list):
            return [self._without(data[index], (*place, index)) for index in self._kept(data, place)]
        return data

    def _kept(self, items: list[Any], place: Place) -> list[int]:
        if place not in self._indices:
            self._indices[place] = [index for index in range(len(items)) if (*place, index) not in self.dropped]
        return self._indices[place]

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
