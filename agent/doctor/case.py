"""What the doctor knows of one identity while walking, and what it may use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.config.model import Config, Identity
from agent.doctor.report import Finding, Verdict
from agent.model import IdentityToken
from agent.toolbox import Toolbox

PATIENCE = 5.0
"""Seconds for one request to an issuer or the endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a running agent says over its control socket."""

    socket: str
    status: Mapping[str, Any] | None
    """As `wi-agent status --json`; None where nobody answers."""
    absence: str = ""
    """Why nobody does."""
    remedy: str = ""
    """What to do about that."""


@dataclass(slots=True, kw_only=True)
class Case:
    """One identity on its way through the links."""

    identity: Identity
    config: Config
    toolbox: Toolbox
    environ: Mapping[str, str]
    view: View
    base: str
    """The metadata endpoint as a client beside the agent reaches it; empty where no client can."""
    token: IdentityToken | None = None
    """Once the source gave one."""
    uid: str = ""
    """Of the ServiceAccount that says who the identity is, once it was seen."""
    exchanged: bool = False
    """Whether a cloud took the token a moment ago."""

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def embedded(self) -> bool:
        """Whether the token comes from the agent's own issuer."""
        return tag(self.identity.source) == "issuer"

    @property
    def clouded(self) -> bool:
        """Whether a cloud has to trust the issuer."""
        return tag(self.identity.provider) != "generic"

    @property
    def timeout(self) -> float:
        """Seconds that the agent would give an exchange."""
        return float((self.identity.refresh.timeout or self.config.refresh.timeout).seconds)

    def own(self, text: str) -> str:
        """A message without the identity's name before it: the report has that above."""
        return text.removeprefix(f"{self.name}: ")


def tag(settings: Any) -> str:
    """The type of a source or provider."""
    return str(settings.__struct_config__.tag)


def ok(link: str, text: str) -> Finding:
    """A link that holds."""
    return Finding(link, Verdict.OK, text)


def warning(link: str, text: str, remedy: str = "") -> Finding:
    """A link that holds, or may."""
    return Finding(link, Verdict.WARNING, text, remedy)


def broken(link: str, text: str, remedy: str = "") -> Finding:
    """A link that does not."""
    return Finding(link, Verdict.BROKEN, text, remedy)


def skipped(link: str, behind: str) -> Finding:
    """A link that was not tried."""
    return Finding(link, Verdict.SKIPPED, f"depends on {behind}, above")
