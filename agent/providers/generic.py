"""No cloud at all: the identity token is the credential, for whoever trusts its issuer."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from agent.model import IdentityToken, Paths, PriorDelivery, Secret
from agent.settings import Settings
from agent.toolbox import Toolbox


class GenericSettings(Settings, tag="generic", tag_field="type"):
    """Whom the token is for."""

    audiences: tuple[str, ...]


class GenericCredential:
    """Nothing beside the token."""

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
