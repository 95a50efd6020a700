"""The doctor's findings, and the text of its report. Nothing here holds a secret."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from agent.sanitize import plain

LINK_WIDTH, VERDICT_WIDTH = 9, 8


class Verdict(StrEnum):
    """The state of a link."""

    OK = "ok"
    WARNING = "warning"
    """It works, or may work; a person should know."""
    BROKEN = "broken"
    SKIPPED = "skipped"
    """It needs a link that is broken."""
    UNUSED = "-"
    """This identity does not use it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line about one link."""

    link: str
    verdict: Verdict
    text: str
    remedy: str = ""
    """The command to type or the setting to change."""


@dataclass(slots=True)
class Sheet:
    """All findings about one identity."""

    identity: str
    findings: list[Finding] = field(default_factory=list)
    trust: Sequence[str] = ()
    """Commands that create the cloud's side, line by line."""

    @property
    def sound(self) -> bool:
        """Whether no link is broken."""
        return all(finding.verdict not in {Verdict.BROKEN, Verdict.SKIPPED} for finding in self.findings)


def render(sheets: Sequence[Sheet]) -> str:
    """Return the report: a line for each link, with its remedy below it; then the commands for the clouds; then a count of broken links."""
    blocks = ["\n".join(_lines(sheet)) for sheet in sheets]
    blocks += [  # not indented, so that it can be pasted
        "\n".join([f"# what the cloud needs in order to trust {sheet.identity}", *sheet.trust]) for sheet in sheets if sheet.trust
    ]
    if len(sheets) > 1:
        blocks.append(_count(sheets))
    return "\n\n".join(blocks) or "no identities are configured"


def _lines(sheet: Sheet) -> Iterator[str]:
    yield sheet.identity
    for finding in sheet.findings:
        yield f"  {finding.link:<{LINK_WIDTH}}{finding.verdict.value:<{VERDICT_WIDTH}} {plain(finding.text)}"
        if finding.remedy:
            yield f"  {'':<{LINK_WIDTH}}→ {plain(finding.remedy)}"


def _count(sheets: Sequence[Sheet]) -> str:
    """Return the last line. It is a shell comment, because the lines before it may be pasted."""
    broken = [
        f"{sheet.identity} ({', '.join(dict.fromkeys(one.link for one in sheet.findings if one.verdict is Verdict.BROKEN))})"
        for sheet in sheets
        if not sheet.sound
    ]
    return f"# {len(broken)} of {len(sheets)} identities have a broken link: {', '.join(broken)}" if broken else "# no link is broken"
