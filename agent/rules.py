"""What the structs cannot say: rules between settings."""

from collections.abc import Iterable, Iterator, Mapping

from agent.config import Config
from agent.document import Document
from agent.fault import Fault, Finding, by_line, show


def placed(document: Document, found: Iterable[Finding]) -> tuple[list[Fault], list[Fault]]:
    """Faults and warnings, each in the order of the lines."""
    refused: list[Fault] = []
    doubtful: list[Fault] = []
    for finding in found:
        other = f" ({show(finding.other)} in line {document.line(finding.other)})" if finding.other else ""
        (doubtful if finding.warning else refused).append(document.fault(finding.place, finding.message + other))
    return sorted(refused, key=by_line), sorted(doubtful, key=by_line)


def findings(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Everything that the rules find."""
    del environ
    names: dict[str, int] = {}
    for index, identity in enumerate(config.identities):
        if identity.name in names:
            other = ("identities", names[identity.name], "name")
            yield Finding(place=("identities", index, "name"), message="the name is taken", other=other, rests_on=(other,))
        names.setdefault(identity.name, index)
