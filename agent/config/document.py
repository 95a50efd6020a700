"""Parses the YAML text into plain data that knows its lines, or reports each fault that prevents it.

The parser is strict: it refuses, or reads as text, the mistakes that YAML accepts in silence (a key given twice, a date
instead of text), and no text makes the agent slow, hang or crash.
"""

import math
from collections.abc import Iterator
from typing import Any
from unicodedata import category

import yaml

from agent.config.fault import MAX_FAULTS, Fault, Place

MAX_LEVELS = 64
"""Of nesting. libyaml's composer recurses in C, and its stack overflow would end the process."""
MAX_VALUES = 50_000
"""Each alias counts as all that it stands for: a few lines of nested aliases can mean billions."""
MAX_VALUE_CHARACTERS = 4096
"""A path has no more (PATH_MAX), and a session policy 2,048."""
MAX_SCALAR_CHARACTERS = 65536
"""Of any text, keys included: YAML tests each for a number, a date and a truth value."""
MAX_NUMBER_CHARACTERS = 40
"""Python's time to parse a number grows with the square of its length, and Python cannot write one of 4,301 digits."""
TOO_LARGE = f"too large: at most {MAX_VALUES} values in {MAX_LEVELS} levels, each alias counted as all that it stands for"
FREE_TEXT = {"claims", "policy"}
"""Blocks whose text may hold more than one line."""
TEXT = "tag:yaml.org,2002:str"
PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")}
KINDS: dict[type[yaml.Node], str] = {
    yaml.ScalarNode: TEXT,
    yaml.SequenceNode: "tag:yaml.org,2002:seq",
    yaml.MappingNode: "tag:yaml.org,2002:map",
}
NUMBERS = {f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float")}
MERGE = "tag:yaml.org,2002:merge"
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Broken(Exception):  # noqa: N818  # a state of the text
    """The text cannot be parsed into data; holds every fault found."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(fault.message for fault in faults))
        self.faults = faults


class _Loader(LOADER):  # type: ignore[misc, valid-type]  # PyYAML's build decides which of the two it is
    """Reads a date as text."""

    yaml_implicit_resolvers = {  # PyYAML's own shape
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in LOADER.yaml_implicit_resolvers.items()
    }


class Document:
    """Plain data and the lines it came from."""

    def __init__(self, data: Any, root: yaml.Node | None, faults: list[Fault]) -> None:
        self.data = data
        self.faults = faults
        """Faults that YAML allows and a configuration does not; the data could be parsed in spite of them."""
        self._root = root
        self._pairs: dict[int, dict[str, tuple[yaml.Node, yaml.Node]]] = {}
        """The pairs of each mapping that was searched, by key: searching all keys for each fault takes minutes."""

    def line(self, place: Place) -> int:
        """Return the line of a key or list item, or of the nearest block around it."""
        return self._find(place)[0]

    def text(self, place: Place) -> str:
        """Return a value as it is written, without its quotes; empty for a block or list."""
        node = self._find(place)[1]
        return str(node.value) if isinstance(node, yaml.ScalarNode) else ""

    def fault(self, place: Place, message: str) -> Fault:
        """Return a fault at this place."""
        return Fault(self.line(place), place, message)

    def _find(self, place: Place) -> tuple[int, yaml.Node | None]:
        node, line = self._root, 1
        for step in place:
            if isinstance(node, yaml.MappingNode):
                pair = self._keys(node).get(str(step))
                if not pair:
                    return line, None
                key, node = pair
                line = key.start_mark.line + 1
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                line = node.start_mark.line + 1
            else:
                return line, None
        return line, node

    def _keys(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Return the pairs of a mapping by key; of a key given twice, the last."""
        if id(node) not in self._pairs:
            self._pairs[id(node)] = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        return self._pairs[id(node)]


def parse(text: str) -> Document:
    """Return the document of a YAML text; an empty text is an empty mapping. Raises Broken."""
    try:
        _measure(text)
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return Document({}, None, [])
            faults = _Inspection(loader).run(root)
            try:
                return Document(loader.construct_document(root), root, faults)
            except (ValueError, KeyError, TypeError, ArithmeticError, yaml.YAMLError) as error:
                raise Broken(faults or [_syntax(error, text)]) from None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise Broken([_syntax(error, text)]) from None


def _measure(text: str) -> None:
    """Raise Broken for a text that takes long to parse, before YAML searches a megabyte for a number."""
    depth = count = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            continue
        depth += isinstance(event, yaml.CollectionStartEvent)
        count += isinstance(event, yaml.NodeEvent)
        if depth > MAX_LEVELS:
            message = f"nested too deeply: use at most {MAX_LEVELS} levels"
        elif count > 2 * MAX_VALUES:  # the count includes keys, which are not values
            message = TOO_LARGE
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > MAX_SCALAR_CHARACTERS:
            message = f"the text is too long: use at most {MAX_VALUE_CHARACTERS} characters"
        else:
            continue
        raise Broken([Fault(event.start_mark.line + 1 if event.start_mark else 0, (), message)])


def _syntax(error: Exception, text: str) -> Fault:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark else text.count("\n", 0, getattr(error, "position", 0)) + 1
    problem = getattr(error, "problem", None) or "the text holds characters that YAML does not allow: remove them"
    written = (text.splitlines() or [""])[min(line, text.count("\n") + 1) - 1 :][:1]
    if written and "\t" in written[0][: len(written[0]) - len(written[0].lstrip())]:
        problem = "a tab cannot indent: use spaces"
    elif "single document" in problem or "single document" in str(getattr(error, "context", "")):
        problem = "the file holds more than one document: keep one, without `---` between"
    elif "undefined alias" in problem:
        problem = "an alias (*name) has no anchor (&name): add the anchor, or quote the text"
    elif "mapping values are not allowed" in problem:
        problem = "a colon follows text that cannot be a key: check the indentation, or quote the text"
    elif "expected" in problem:
        problem += ": check the indentation, colons and brackets here and in the line above"
    return Fault(line, (), f"not YAML: {problem}")


class _Inspection:
    """Finds everything that YAML allows and the configuration does not, in time linear in the text's length."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._extents: dict[int, tuple[int, int]] = {}
        self._faults: list[Fault] = []

    def run(self, root: yaml.Node) -> list[Fault]:
        """Return every fault that leaves the rest readable. Raises Broken for any other."""
        self._extent(root, (), ())
        return self._faults

    def _extent(self, node: yaml.Node, place: Place, around: tuple[int, ...]) -> tuple[int, int]:
        """Return how many values and levels the node stands for. Each node is inspected once, however many aliases it has."""
        if id(node) in self._extents:
            return self._extents[id(node)]
        line = node.start_mark.line + 1
        if id(node) in around:
            raise Broken([Fault(line, place, "an alias contains itself: write the values out")])
        if node.tag not in PLAIN:
            self._say(Fault(line, place, f"the YAML tag {node.tag[:60]!r} is not supported: write plain values"))
            node.tag = KINDS[type(node)]  # an unknown tag could construct any Python object
        if isinstance(node, yaml.ScalarNode):
            self._scalar(node, place)
        size, levels = 1, 1
        for below, child in self._children(node, place):
            more, deeper = self._extent(child, below, (*around, id(node)))
            size, levels = size + more, max(levels, deeper + 1)
        if size > MAX_VALUES or levels + len(around) > MAX_LEVELS:
            raise Broken([Fault(line, place, TOO_LARGE)])
        self._extents[id(node)] = size, levels
        return size, levels

    def _children(self, node: yaml.Node, place: Place) -> Iterator[tuple[Place, yaml.Node]]:
        if isinstance(node, yaml.SequenceNode):
            yield from (((*place, index), child) for index, child in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if key.tag == MERGE:
                    yield place, value
                    continue
                if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                    self._say(Fault(line, place, "a key must be text: put it in quotes"))
                    if isinstance(key, yaml.ScalarNode) and len(key.value) > MAX_NUMBER_CHARACTERS:
                        key.tag = TEXT
                    continue
                below = (*place, key.value)
                if key.value in lines:
                    self._say(Fault(line, below, f"given twice, first in line {lines[key.value]}: keep one"))
                lines.setdefault(key.value, line)
                self._text(key, place)
                yield below, value

    def _say(self, fault: Fault) -> None:
        """Add a fault. Raises Broken after `MAX_FAULTS`."""
        self._faults.append(fault)
        if len(self._faults) > MAX_FAULTS:
            raise Broken(self._faults)

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> None:
        if node.tag in NUMBERS and len(node.value) > MAX_NUMBER_CHARACTERS:
            self._say(Fault(node.start_mark.line + 1, place, "the number is too long: quote it if it is text"))
            node.tag = TEXT
        elif node.tag in NUMBERS:
            try:
                value = self._loader.construct_object(node)
            except (ValueError, KeyError, ArithmeticError):
                value = math.nan
            if isinstance(value, float) and not math.isfinite(value):
                self._say(Fault(node.start_mark.line + 1, place, "the number is not finite: write a finite one"))
            elif isinstance(value, int) and abs(value) >= 1 << 63:
                self._say(Fault(node.start_mark.line + 1, place, "the number is too large: quote it if it is text"))
        self._text(node, place)

    def _text(self, node: yaml.ScalarNode, place: Place) -> None:
        if len(node.value) > MAX_VALUE_CHARACTERS:
            self._say(Fault(node.start_mark.line + 1, place, f"the text is too long: use at most {MAX_VALUE_CHARACTERS} characters"))
            return
        if node.value.isprintable():
            return
        allowed = "\n\t\r" if FREE_TEXT & set(place) else ""
        if any(character not in allowed and category(character) in {"Cc", "Cs"} for character in node.value):
            self._say(Fault(node.start_mark.line + 1, place, "the text holds a line break or control character: write it in one line"))
