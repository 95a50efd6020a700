"""What the structs cannot say: rules between settings, one small generator for each."""

from collections.abc import Iterable, Iterator, Mapping

from agent.config import Config
from agent.reading.document import Document
from agent.reading.fault import MOST_FAULTS, Fault, Finding, by_line, show
from agent.reading.rules import clouds, identities, issuing, kubernetes, listening, serving, sinks, tenants, timing


def findings(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Everything that the rules find."""
    for rules in (identities, clouds, issuing, kubernetes, listening, serving, sinks, tenants, timing):
        for rule in rules.RULES:
            yield from rule(config)
    yield from identities.authorizations(config, environ)


def placed(document: Document, found: Iterable[Finding], *, reload: bool = False) -> tuple[list[Fault], list[Fault]]:
    """Faults and warnings, each in the order of the lines. At a reload an identity that tenancy forbids is no fault of the file."""
    refused: list[Fault] = []
    doubtful: list[Fault] = []
    for finding in found:
        if len(doubtful if finding.warning else refused) > MOST_FAULTS:
            if not finding.warning:
                break
            continue
        other = f" ({show(finding.other)} in line {document.line(finding.other)})" if finding.other else ""
        (doubtful if finding.warning or (reload and finding.forbids) else refused).append(
            document.fault(finding.place, finding.message + other)
        )
    return sorted(refused, key=by_line), sorted(doubtful, key=by_line)
