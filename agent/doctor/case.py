"""The doctor's case: one identity on its way through the links, and the tools for the walk."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.config.model import Config, Identity
from agent.doctor.report import Finding, Verdict
from agent.model import IdentityToken
from agent.toolbox import Toolbox

REQUEST_TIMEOUT_SECONDS = 5.0
"""For one request to an issuer or the endpoint, and for one disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The state that a running agent reports over its control socket."""

    socket: str
    status: Mapping[str, Any] | None
    """As `wi-agent status --json`; None if no agent answers."""
    absence: str = ""
    """Why no agent answers."""
    remedy: str = ""
    """How to make one answer."""


@dataclass(slots=True, kw_only=True)
class Case:
    """One identity on its way through the links."""

    identity: Identity
    config: Config
    toolbox: Toolbox
    environ: Mapping[str, str]
    view: View
    base: str
    """The metadata endpoint as a client beside the agent reaches it; empty if no client can."""
    token: IdentityToken | None = None
    """Set once the source yielded one."""
    uid: str = ""
    """Of the ServiceAccount whose annotations name the principal, once it was seen."""
    exchanged: bool = False
    """Whether a cloud accepted the token during this walk."""

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def uses_own_issuer(self) -> bool:
        """Whether the token comes from the agent's own issuer."""
        return tag(self.identity.source) == "issuer"

    @property
    def has_cloud(self) -> bool:
        """Whether a cloud has to trust the issuer."""
        return tag(self.identity.provider) != "generic"

    @property
    def exchange_timeout_seconds(self) -> float:
        """The agent's own timeout of an exchange."""
        return float((self.identity.refresh.timeout or self.config.refresh.timeout).seconds)

    def without_name(self, text: str) -> str:
        """Return a message without the identity's name at its start: the report's heading has it."""
        return text.removeprefix(f"{self.name}: ")


def tag(settings: Any) -> str:
    """Return the type of a source or provider."""
    return str(settings.__struct_config__.tag)


def ok(link: str, text: str) -> Finding:
    """Return a link that works."""
    return Finding(link, Verdict.OK, text)


def warning(link: str, text: str, remedy: str = "") -> Finding:
    """Return a link that works, or may work."""
    return Finding(link, Verdict.WARNING, text, remedy)


def broken(link: str, text: str, remedy: str = "") -> Finding:
    """Return a link that does not work."""
    return Finding(link, Verdict.BROKEN, text, remedy)


def skipped(link: str, needed: str) -> Finding:
    """Return a link that was not tried, because it needs another one."""
    return Finding(link, Verdict.SKIPPED, f"depends on {needed}, above")
