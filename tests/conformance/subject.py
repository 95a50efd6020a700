"""What the conformance suite wants to know of a cloud; each file in `clouds` says it of one."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from aiohttp import web

from agent.model import IdentityToken, Provider
from agent.providers.settings import ProviderDefaults
from agent.toolbox import Toolbox
from tests.servers.site import Site

Answer = Callable[[web.BaseRequest], web.StreamResponse]
IDENTITY = "reader"
"""What each provider under test belongs to."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A cloud that is up, and providers that ask it."""

    server: Site
    """Has the knobs `instead` and `hanging`, besides what a site has."""
    toolbox: Toolbox
    provider: Callable[..., Provider]
    """With these settings, as in a configuration file; asks the server, unless `endpoint` says otherwise."""
    settings: Callable[..., ProviderDefaults]
    """The settings that it would have."""
    token: Callable[..., IdentityToken]
    """A token that the server believes, but for these claims."""
    granted: Callable[[], Sequence[str]]
    """Every secret that the server has given away so far."""


class Open(Protocol):
    """Makes a subject that is up while entered. `tls` is the server's context, `patience` the provider's in seconds."""

    def __call__(self, *, patience: float = 5.0, **server: Any) -> AbstractAsyncContextManager[Subject]: ...


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """What is to be expected of a cloud."""

    open: Open
    exchanges: bool = True
    """Whether anything is sent at all."""
    codes: Mapping[str, str] = field(default_factory=dict)
    """What the cloud says to a token with another `audience` or `subject`, one `expired`, one signed by another `key`."""
    troubled: Callable[..., Answer] | None = None
    """A refusal with this status, as the cloud words those that pass by themselves; keywords are headers."""
    page: Callable[..., Answer] | None = None
    """Status, text and headers of what is not of the cloud at all."""
    grant: Callable[[datetime | None], Answer] | None = None
    """A grant that ends then, or does not say when."""
    senseless: Sequence[Answer] = ()
    """Grants whose end cannot be understood."""
    files: frozenset[str] = frozenset({"credentialsFile", "config"})
    """Written for every credential."""
    kept: frozenset[str] = frozenset()
    """Written besides where the agent exchanged; from them a restart finds the credential."""
    modules: frozenset[str] = frozenset()
    """What its first exchange may load of SDKs."""
