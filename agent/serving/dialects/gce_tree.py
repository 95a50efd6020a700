"""The data of Google's metadata server besides tokens, as a tree: read one by one, listed, or all at once.

https://cloud.google.com/compute/docs/metadata/querying-metadata (directories, `recursive`, `alt`),
https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#metadata_server (the part that a pod sees)
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from agent.record import Profile

Value = str | int | list[str]
Node = Union["Leaf", "Directory"]
Directory = Mapping[str, Node]
CUSTOM_NAMES = {"attributes", "service-accounts"}
"""Directories whose entries have names that users chose."""
UNLISTED = {"token", "identity"}
"""Left out of recursive answers."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in the tree."""

    value: Value


def tree_of(profile: Profile) -> Directory:
    """Return the tree of an identity. Unknown facts are left out, so that SDKs look elsewhere."""
    facts = profile.facts
    email = facts.get("email", "")
    scopes = facts.get("scopes", "").split()
    account: Directory = {
        "aliases": Leaf(["default"]),
        "email": Leaf(email or "default"),  # google-auth fails without one
        "identity": Leaf(""),
        "scopes": Leaf(scopes),
        "token": Leaf(""),
    }
    zone, number = facts.get("zone", ""), facts.get("project-number", "")
    names = {"cluster-location": "cluster-location", "cluster-name": "cluster-name"}
    instance: dict[str, Node] = {
        "attributes": {name: Leaf(facts[fact]) for name, fact in names.items() if facts.get(fact)},
        "service-accounts": {**({email: account} if email else {}), "default": account},
    }
    if zone:
        instance["zone"] = Leaf(f"projects/{number}/zones/{zone}")
        instance["region"] = Leaf(f"projects/{number}/regions/{zone.rpartition('-')[0]}")
    project: dict[str, Node] = {"attributes": {}}
    if number:
        project["numeric-project-id"] = Leaf(int(number))
    if facts.get("project-id"):
        project["project-id"] = Leaf(facts["project-id"])
    universe = Leaf(facts.get("universe-domain", "googleapis.com"))
    return {"instance": instance, "project": project, "universe": {"universe-domain": universe, "universe_domain": universe}}


def read(tree: Directory, path: str) -> Node | None:
    """Return the node at a path, or None; only a directory's path may end with a slash."""
    node: Node = tree
    for step in path.rstrip("/").split("/") if path.rstrip("/") else ():
        found = None if isinstance(node, Leaf) else node.get(step)
        if found is None:
            return None
        node = found
    return None if isinstance(node, Leaf) and path.endswith("/") else node


def listed(directory: Directory) -> bytes:
    """Return one entry a line, directories with a slash."""
    names = sorted(name if isinstance(node, Leaf) else f"{name}/" for name, node in directory.items() if "_" not in name)
    return "".join(f"{name}\n" for name in names).encode()


def written(node: Node, *, json: bool, named: str = "") -> bytes:
    """Return the node with everything below it. `named`: the path of the node."""
    if json:
        return _dumped(_plain(node, kept=named.rstrip("/").rpartition("/")[2] in CUSTOM_NAMES))
    if isinstance(node, Leaf):
        return _text(node.value).encode()
    return "".join(f"{path} {line}\n" for path, value in _flat(node) for line in _text(value).split("\n") if line).encode()


def _dumped(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _plain(node: Node, *, kept: bool = False) -> object:
    """Return the node with names in camel case, as Google writes them, except those that users chose (`kept`)."""
    if isinstance(node, Leaf):
        return node.value
    return {
        name if kept else _camel(name): _plain(below, kept=name in CUSTOM_NAMES)
        for name, below in node.items()
        if name not in UNLISTED and ("_" not in name)
    }


def _flat(directory: Directory, before: str = "") -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    for name, node in directory.items():
        if name in UNLISTED or "_" in name:
            continue
        found += [(before + name, node.value)] if isinstance(node, Leaf) else _flat(node, f"{before}{name}/")
    return found


def _text(value: Value) -> str:
    """Return the value as text, a list with one line for each item."""
    return "".join(f"{one}\n" for one in value) if isinstance(value, list) else str(value)


def _camel(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(one.capitalize() for one in others)
