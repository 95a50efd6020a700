"""Rules between settings, which the structs cannot express: one small generator for each rule."""

from collections.abc import Iterable, Iterator, Mapping

from agent.config.document import Document
from agent.config.fault import MAX_FAULTS, Fault, Finding, by_line, show
from agent.config.model import Config
from agent.config.rules import identities, issuer, kubernetes, listen, providers, refresh, serving, sinks, tenancy


def findings(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings of every rule."""
    for rules in (identities, providers, issuer, kubernetes, listen, serving, sinks, tenancy, refresh):
        for rule in rules.RULES:
            yield from rule(config)
    yield from identities.authorizations(config, environ)


def placed(document: Document, found: Iterable[Finding], *, reload: bool = False) -> tuple[list[Fault], list[Fault]]:
    """Return faults and warnings, each in the order of the lines. At a reload an identity that tenancy forbids is a warning."""
    refused: list[Fault] = []
    doubtful: list[Fault] = []
    for finding in found:
        if len(doubtful if finding.warning else refused) > MAX_FAULTS:
            if not finding.warning:
                break
            continue
        other = f" ({show(finding.other)} in line {document.line(finding.other)})" if finding.other else ""
        (doubtful if finding.warning or (reload and finding.forbids) else refused).append(
            document.fault(finding.place, finding.message + other)
        )
    return sorted(refused, key=by_line), sorted(doubtful, key=by_line)
