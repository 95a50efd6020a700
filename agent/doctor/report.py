"""What the doctor found, and how a person reads it. Nothing here holds a secret."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from agent.sanitize import plain

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
    """For a terminal: a line a link, remedies below it; below all of them what the clouds have to trust, and at last a count."""
    blocks = ["\n".join(_lines(sheet)) for sheet in sheets]
    blocks += [  # not indented: it is there to be pasted
        "\n".join([f"# what the cloud needs in order to trust {sheet.identity}", *sheet.trust]) for sheet in sheets if sheet.trust
    ]
    if len(sheets) > 1:
        blocks.append(_count(sheets))
    return "\n\n".join(blocks) or "no identities are configured"


def _lines(sheet: Sheet) -> Iterator[str]:
    yield sheet.identity
    for finding in sheet.findings:
        yield f"  {finding.link:<{LINK}}{finding.verdict.value:<{VERDICT}} {plain(finding.text)}"
        if finding.remedy:
            yield f"  {'':<{LINK}}→ {plain(finding.remedy)}"


def _count(sheets: Sequence[Sheet]) -> str:
    """In one line, which a terminal shows last; a comment, for what stands before it may be pasted."""
    broken = [
        f"{sheet.identity} ({', '.join(dict.fromkeys(one.link for one in sheet.findings if one.verdict is Verdict.BROKEN))})"
        for sheet in sheets
        if not sheet.sound
    ]
    return f"# {len(broken)} of {len(sheets)} identities have a broken link: {', '.join(broken)}" if broken else "# no link is broken"
