"""What the doctor found, and how a person reads it. Nothing here holds a secret."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from agent.plain import plain

LINK, VERDICT = 9, 8
"""Widths of the first two columns."""


class Verdict(StrEnum):
    """How a link stands."""

    OK = "ok"
    WARNING = "warning"
    """It works, or may; somebody should know."""
    BROKEN = "broken"
    SKIPPED = "skipped"
    """It depends on a link that is broken."""
    UNUSED = "-"
    """This identity does without it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line about one link."""

    link: str
    verdict: Verdict
    text: str
    remedy: str = ""
    """What to type or change."""


@dataclass(slots=True)
class Sheet:
    """All that was found of one identity."""

    identity: str
    findings: list[Finding] = field(default_factory=list)
    trust: Sequence[str] = ()
    """What to create on the cloud's side, line by line."""

    @property
    def sound(self) -> bool:
        """Whether nothing is broken."""
        return all(finding.verdict not in {Verdict.BROKEN, Verdict.SKIPPED} for finding in self.findings)


def render(sheets: Sequence[Sheet]) -> str:
    """For a terminal: a line a link, remedies below it, and what the cloud has to trust below all of them."""
    blocks = []
    for sheet in sheets:
        lines = [sheet.identity]
        for finding in sheet.findings:
            lines.append(f"  {finding.link:<{LINK}}{finding.verdict.value:<{VERDICT}} {plain(finding.text)}")
            if finding.remedy:
                lines.append(f"  {'':<{LINK}}→ {plain(finding.remedy)}")
        if sheet.trust:
            lines += [
                "",
                f"# what the cloud needs in order to trust {sheet.identity}",
                *sheet.trust,
            ]  # not indented: it is there to be pasted
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) or "no identities are configured"
