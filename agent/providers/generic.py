"""No cloud: the identity token is the credential, for every service that trusts its issuer."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from agent.model import IdentityToken, Paths, PriorDelivery, Secret
from agent.providers.settings import ProviderDefaults
from agent.toolbox import Toolbox


class GenericSettings(ProviderDefaults, tag="generic", tag_field="type"):
    """The audiences of the token."""

    audiences: tuple[str, ...]


class GenericCredential:
    """A credential without anything besides the token."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None

    def __init__(self, settings: GenericSettings) -> None:
        self._settings = settings

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        return {"config": Secret(msgspec.json.encode({"audiences": self._settings.audiences}).decode())}

    def document(self) -> Mapping[str, Any]:
        return {}


class GenericProvider:
    """Exchanges nothing."""

    host = ""

    def __init__(self, settings: GenericSettings, identity: str, toolbox: Toolbox) -> None:
        self._settings = settings
        self.audiences = settings.audiences

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> GenericCredential:
        return GenericCredential(self._settings)

    def restore(self, prior: PriorDelivery) -> GenericCredential:
        return GenericCredential(self._settings)
